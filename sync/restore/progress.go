package restore

import "time"

// Stage is what an Executor is at.
type Stage string

// The stages, in their order.
const (
	StageCRDs       Stage = "CRDs"
	StageServed     Stage = "kinds served"
	StageNamespaces Stage = "Namespaces"
	StageObjects    Stage = "objects"
)

// Progress is how far a stage is.
type Progress struct {
	Stage Stage
	Done  int // of Total; those that failed too
	Total int
	Began time.Time
}

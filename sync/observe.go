package sync

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Operation is something that an Observer measures.
type Operation string

// The operations. OpCycle holds all others but OpMaintain.
const (
	OpCycle    Operation = "cycle"    // one pass: derive, commit, push
	OpFetch    Operation = "fetch"    // the remote is asked for its refs, and what is missing here is fetched
	OpCommit   Operation = "commit"   // a commit is made in the clone
	OpPush     Operation = "push"     // branch and refs are sent, until the remote acknowledges them
	OpCheckout Operation = "checkout" // the files on disk follow the branch
	OpMaintain Operation = "maintain" // the clone's packs are merged
)

// Operations returns all of them.
func Operations() []Operation {
	return []Operation{OpCycle, OpFetch, OpCommit, OpPush, OpCheckout, OpMaintain}
}

// Sight is what a watch told of an object.
type Sight string

// The sights.
const (
	SightChanged     Sight = "changed"     // created or changed
	SightDeleted     Sight = "deleted"     // gone
	SightUnselected  Sight = "unselected"  // selected by no rule
	SightQuarantined Sight = "quarantined" // it has no encoding
)

// Observer measures an agent at work. Time is its business: who calls it says what begins
// and what ends. Its methods are called from several goroutines and must return at once.
type Observer interface {
	// Seen tells of an object that a watch told of. What listings show is not told.
	Seen(resource schema.GroupResource, sight Sight)
	// Begin tells that an operation begins. The function that it returns is called once,
	// when the operation has ended, with its error.
	Begin(op Operation) (end func(error))
	// Taken tells that a batch of so many objects was closed; never of none.
	Taken(objects int)
	// Waiting tells how many objects wait for their push to be acknowledged, and since
	// when the oldest of them does; zero where that is not known, or none waits.
	Waiting(objects int, since time.Time)
	// Acknowledged tells when a change was seen that the remote has from now on.
	Acknowledged(seen time.Time)
	// Retried tells that a cycle is tried again because of an error.
	Retried()
}

// unobserved is the Observer of those that have none.
type unobserved struct{}

func (unobserved) Seen(schema.GroupResource, Sight) {}
func (unobserved) Begin(Operation) func(error)      { return func(error) {} }
func (unobserved) Taken(int)                        {}
func (unobserved) Waiting(int, time.Time)           {}
func (unobserved) Acknowledged(time.Time)           {}
func (unobserved) Retried()                         {}

// orNobody returns o, or an Observer that does nothing.
func orNobody(o Observer) Observer {
	if o == nil {
		return unobserved{}
	}
	return o
}

package restore

// trackingMarks are the labels and annotations by which other tools know which objects are
// theirs. An object that is restored with one may be deleted by that tool, because the tool does not
// know it any more, or be taken over by it.
var trackingMarks = [...]struct {
	tool       string
	field, key string
	value      string // "" is any
}{
	{"Argo CD", "labels", "app.kubernetes.io/instance", ""}, // its default before version 3; also a common label of charts
	{"Argo CD", "labels", "argocd.argoproj.io/instance", ""},
	{"Argo CD", "annotations", "argocd.argoproj.io/tracking-id", ""},
	{"Argo CD", "annotations", "argocd.argoproj.io/installation-id", ""},
	{"Flux", "labels", "kustomize.toolkit.fluxcd.io/name", ""},
	{"Flux", "labels", "kustomize.toolkit.fluxcd.io/namespace", ""},
	{"Flux", "labels", "helm.toolkit.fluxcd.io/name", ""},
	{"Flux", "labels", "helm.toolkit.fluxcd.io/namespace", ""},
	{"Helm", "labels", "app.kubernetes.io/managed-by", "Helm"},
	{"Helm", "annotations", "meta.helm.sh/release-name", ""},
	{"Helm", "annotations", "meta.helm.sh/release-namespace", ""},
	{"kluctl", "labels", "kluctl.io/discriminator", ""},
	{"kapp", "labels", "kapp.k14s.io/app", ""},
	{"kapp", "labels", "kapp.k14s.io/association", ""},
	{"kapp", "annotations", "kapp.k14s.io/identity", ""},
	{"Config Sync", "labels", "app.kubernetes.io/managed-by", "configmanagement.gke.io"},
	{"Config Sync", "labels", "configsync.gke.io/declared-version", ""},
	{"Config Sync", "annotations", "configmanagement.gke.io/managed", ""},
	{"Config Sync", "annotations", "configsync.gke.io/resource-id", ""},
	{"cli-utils", "annotations", "config.k8s.io/owning-inventory", ""},
	{"kubectl", "labels", "applyset.kubernetes.io/part-of", ""},
	// k3s, RKE2 and Fleet apply through the same library as Rancher.
	{"Rancher", "labels", "objectset.rio.cattle.io/hash", ""},
	{"Rancher", "annotations", "objectset.rio.cattle.io/id", ""},
	{"Rancher", "annotations", "objectset.rio.cattle.io/owner-gvk", ""},
	{"Rancher", "annotations", "objectset.rio.cattle.io/owner-name", ""},
	{"Rancher", "annotations", "objectset.rio.cattle.io/owner-namespace", ""},
	{"Rancher", "annotations", "objectset.rio.cattle.io/applied", ""},
}

// Tracking lists what Options.StripTracking leaves out, a line each for people to read:
// "Flux: label kustomize.toolkit.fluxcd.io/name".
func Tracking() []string {
	var lines []string
	for _, m := range trackingMarks {
		line := m.tool + ": " + m.field[:len(m.field)-1] + " " + m.key
		if m.value != "" {
			line += "=" + m.value
		}
		lines = append(lines, line)
	}
	return lines
}

// tracks tells whether another tool claims an object by a label or an annotation.
func tracks(field, key string, value any) bool {
	for _, m := range trackingMarks {
		if m.field == field && m.key == key && (m.value == "" || m.value == value) {
			return true
		}
	}
	return false
}

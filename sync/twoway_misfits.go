package sync

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/crmirror/crmirror/kube"
)

// modeName names what lies in git in the place of a file.
func modeName(mode filemode.FileMode) string {
	switch mode {
	case filemode.Symlink:
		return "a symlink"
	case filemode.Submodule:
		return "a submodule"
	case filemode.Dir:
		return "a folder"
	}
	return "an entry of mode " + mode.String()
}

// lineOf takes the line out of what is wrong with a file; 0 when it tells none.
func lineOf(err error) (int, string) {
	var syntax *kube.SyntaxError
	if !errors.As(err, &syntax) || syntax.Line == 0 {
		return 0, err.Error()
	}
	return syntax.Line, strings.Replace(err.Error(), syntax.Error(), syntax.Msg, 1)
}

// misscoped says of an object's file that it lies where its kind has none: below cluster/ though the
// kind is namespaced, or the reverse; else "".
func (m *Mirror) misscoped(key kube.Key) string {
	gr := key.GroupResource()
	_, namespaced, served := m.cluster.Kind(gr)
	switch {
	case !served || namespaced == (key.Namespace != ""):
		return ""
	case namespaced:
		return fmt.Sprintf("%s are namespaced: they are applied from namespaces/<namespace>/%s/, not from below cluster/", gr, gr)
	}
	return fmt.Sprintf("%s are cluster-scoped: they are applied from cluster/%s/, not from below namespaces/", gr, gr)
}

// badName says that no object can have a key's name; else "". Of names that only the
// server can judge, it does.
func badName(key kube.Key) string {
	wrong := content.IsPathSegmentName(key.Name)
	if custom := strings.Contains(key.Group, ".") && !strings.HasSuffix(key.Group, ".k8s.io"); custom {
		wrong = append(wrong, validation.NameIsDNSSubdomain(key.Name, false)...)
	}
	if len(wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("%q is no name that an object can have: %s", Printable(key.Name, nameRunes), strings.Join(wrong, "; "))
}

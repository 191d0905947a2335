package informer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"github.com/crmirror/crmirror/kube/informer"
)

func TestRouteKlog(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	log.SetLevel(logrus.DebugLevel)
	informer.RouteKlog(log)
	t.Cleanup(klog.ClearLogger)
	klog.Warning("from the client library")
	klog.ErrorS(errors.New("the cause"), "a message", "object", "the body")
	got := out.String()
	for _, want := range []string{"level=debug", "from the client library", "the cause", "a message"} {
		if !strings.Contains(got, want) {
			t.Errorf("log lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "the body") {
		t.Errorf("log has values:\n%s", got)
	}
}

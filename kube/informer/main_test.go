package informer_test

import (
	"testing"

	"github.com/crmirror/crmirror/kube/kubetest"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

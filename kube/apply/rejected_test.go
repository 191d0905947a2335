package apply_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube"
	"github.com/crmirror/crmirror/kube/apply"
	"github.com/crmirror/crmirror/kube/kubetest"
)

const secret = `pass"word-1234`

func (w *widgets) typed() kubernetes.Interface {
	w.t.Helper()
	client, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	return client
}

func TestRejected(t *testing.T) {
	w := install(t, "rejected")
	live := w.create("other", "a", "{size: 1, locked: x, legacy: old, secret: '"+secret+"'}")
	const rest = "locked: x, legacy: old, secret: '" + secret + "', replicas: 1, mode: auto"
	for _, test := range []struct {
		name, set string
		spec      map[string]any // besides what live has
		verdict   apply.Verdict
		says      string
	}{
		{"unknown field", "spec.nofield", map[string]any{"nofield": "x"}, apply.UnknownField, "nofield"},
		{"wrong type", "spec.size", map[string]any{"size": "text"}, apply.Invalid, "spec.size"},
		{"enumeration", "spec.grade", map[string]any{"grade": "middle"}, apply.Invalid, `"low"`},
		{"immutable", "spec.locked", map[string]any{"locked": "z"}, apply.Invalid, "locked for ever"},
		{"one of", "spec.solver", map[string]any{"solver": map[string]any{}}, apply.Invalid, "one and only one"},
		{"too large", "spec.color", map[string]any{"color": strings.Repeat("x", 1_700_000)}, apply.TooLarge, ""},
		{"much too large", "spec.color", map[string]any{"color": strings.Repeat("x", 2_900_000)}, apply.TooLarge, ""},
		{"far too large", "spec.color", map[string]any{"color": strings.Repeat("x", 3_400_000)}, apply.TooLarge, ""},
		{"redacted", "spec.color", map[string]any{"color": "crmirror-redacted:v1:0"}, apply.Redacted, ""},
		{"a shaped value", "spec.secret", map[string]any{"secret": secret + strings.Repeat("!", 40)}, apply.Invalid, "spec.secret"},
		{"a bad pattern", "spec.pattern", map[string]any{"pattern": strings.Repeat("LONG", 100)}, apply.Invalid, "spec.pattern"},
	} {
		// By apply, and, since a removal goes with it, by patch.
		for _, remove := range []string{"", "spec.legacy"} {
			t.Run(test.name+" "+remove, func(t *testing.T) {
				want := w.object("a", "{size: 1, "+rest+"}")
				for k, v := range test.spec {
					want.Object["spec"].(map[string]any)[k] = v
				}
				c := apply.Change{
					Key: w.key("a"), Resource: w.resource("v1"), Live: live, Want: want.Object,
					Set: paths(t, test.set), Shaped: paths(t, "spec.secret"),
				}
				if remove != "" {
					delete(want.Object["spec"].(map[string]any), "legacy")
					c.Remove = paths(t, remove)
				}
				_, err := w.writer().Write(t.Context(), c)
				r := rejected(t, err, test.verdict)
				if r.Retry || !strings.Contains(r.Message, test.says) {
					t.Errorf("retry %v, message %q", r.Retry, r.Message)
				}
				expectNoBody(t, err)
				if w.get("a").GetResourceVersion() != live.GetResourceVersion() {
					t.Fatal("written")
				}
			})
		}
	}
}

func expectNoBody(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	quoted, _ := json.Marshal(secret)
	for _, body := range []string{secret, string(quoted[1 : len(quoted)-1]), "managedFields", "xxxxxxxx", "LONGLONG"} {
		if strings.Contains(text, body) {
			t.Errorf("the error shows %q: %.300s", body, text)
		}
	}
	if len(text) > 1200 {
		t.Errorf("the error has %d bytes", len(text))
	}
}

func TestForbidden(t *testing.T) {
	w := install(t, "forbidden")
	w.typ("v1")
	live := w.create("other", "a", "{size: 1}")
	user, _, err := kubetest.Shared(t).User("reader-of-widgets")
	if err != nil {
		t.Fatal(err)
	}
	w.allow("reader-of-widgets", "get", "list")
	writer := newWriter(t, user, apply.Options{})
	poll(t, "the permission", func(ctx context.Context) error {
		_, err := writer.Read(ctx, w.key("a"), "v1")
		return err
	})
	for name, spec := range map[string]string{"apply": "{size: 2, replicas: 1, mode: auto}", "patch": "{replicas: 1, mode: auto}"} {
		_, err := writer.Write(t.Context(), w.become(live, spec))
		if r := rejected(t, err, apply.Forbidden); r.Retry || !strings.Contains(r.Message, "reader-of-widgets") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = writer.Create(t.Context(), w.key("b"), w.resource("v1"), w.object("b", "{}").Object, nil)
	rejected(t, err, apply.Forbidden)
	_, err = writer.Delete(t.Context(), w.key("a"), w.resource("v1"), live)
	rejected(t, err, apply.Forbidden)
	_, err = writer.Read(t.Context(), kube.Key{Resource: "secrets", Namespace: w.namespace, Name: "a"}, "v1")
	rejected(t, err, apply.Forbidden)
}

func (w *widgets) allow(user string, verbs ...string) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user + "." + w.group},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{w.group}, Resources: []string{"widgets"}, Verbs: verbs}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user + "." + w.group},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	if _, err := w.typed().RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.typed().RbacV1().ClusterRoleBindings().Create(w.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// TestPolicy has a ValidatingAdmissionPolicy deny, in words that quote a value.
func TestPolicy(t *testing.T) {
	w := install(t, "policy")
	live := w.create("other", "a", "{size: 1, legacy: old, secret: '"+secret+"'}")
	policies := w.typed().AdmissionregistrationV1()
	fail, equivalent := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + w.group},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{MatchPolicy: &equivalent, ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: rules(w.group),
			}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression:        "object.spec.size < 10",
				MessageExpression: "'too big with ' + object.spec.secret",
			}},
		},
	}
	if _, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: policy.ObjectMeta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := errors.Join(policies.ValidatingAdmissionPolicyBindings().Delete(ctx, policy.Name, metav1.DeleteOptions{}),
			policies.ValidatingAdmissionPolicies().Delete(ctx, policy.Name, metav1.DeleteOptions{}))
		if err != nil {
			t.Error(err)
		}
	})
	dry := newWriter(t, w.config, apply.Options{DryRun: true})
	for _, legacy := range []string{"legacy: old, ", ""} {
		c := w.become(live, "{size: 20, "+legacy+"secret: '"+secret+"', replicas: 1, mode: auto}")
		c.Shaped = paths(t, "spec.secret")
		poll(t, "the policy", func(ctx context.Context) error {
			if _, err := dry.Write(ctx, c); err == nil {
				return errors.New("not yet")
			}
			return nil
		})
		_, err := w.writer().Write(t.Context(), c)
		if r := rejected(t, err, apply.Denied); r.Retry || !strings.Contains(r.Message, "too big with [hidden]") {
			t.Errorf("got %v", err)
		}
		expectNoBody(t, err)
	}
}

func rules(group string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"widgets"}},
	}
}

// TestWebhooks has a webhook deny, break and change what is written.
func TestWebhooks(t *testing.T) {
	w := install(t, "webhooks")
	w.typ("v1")
	live := w.create("other", "a", "{size: 1, secret: '"+secret+"'}")
	var answer atomic.Pointer[func(*admissionv1.AdmissionReview, http.ResponseWriter)]
	allow := func(r *admissionv1.AdmissionReview, _ http.ResponseWriter) { r.Response.Allowed = true }
	answer.Store(&allow)
	var asked atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID}
		(*answer.Load())(&review, rw)
		review.Request = nil
		if err := json.NewEncoder(rw).Encode(review); err != nil {
			t.Log(err)
		}
	}))
	t.Cleanup(server.Close)
	w.webhook(server)
	dry := newWriter(t, w.config, apply.Options{DryRun: true})
	c := w.become(live, "{size: 2, secret: '"+secret+"', replicas: 1, mode: auto}")
	c.Shaped = paths(t, "spec.secret")
	poll(t, "the webhook", func(ctx context.Context) error {
		if _, err := dry.Write(ctx, c); err == nil && asked.Load() == 0 {
			return errors.New("not asked yet")
		}
		return nil
	})
	try := func(f func(*admissionv1.AdmissionReview, http.ResponseWriter)) (apply.Result, error) {
		answer.Store(&f)
		return w.writer().Write(t.Context(), c)
	}
	for _, code := range []int32{0, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusNotFound} {
		_, err := try(func(r *admissionv1.AdmissionReview, _ http.ResponseWriter) {
			r.Response.Result = &metav1.Status{Code: code, Message: "not with " + secret}
		})
		if r := rejected(t, err, apply.Denied); r.Retry || !strings.Contains(r.Message, "not with [hidden]") {
			t.Errorf("code %d: got %v", code, err)
		}
		expectNoBody(t, err)
	}
	_, err := try(func(_ *admissionv1.AdmissionReview, rw http.ResponseWriter) {
		rw.WriteHeader(http.StatusInternalServerError)
	})
	if r := rejected(t, err, apply.Failing); !r.Retry {
		t.Errorf("got %v", err)
	}
	result, err := try(func(r *admissionv1.AdmissionReview, _ http.ResponseWriter) {
		patch := admissionv1.PatchTypeJSONPatch
		r.Response.Allowed, r.Response.PatchType = true, &patch
		r.Response.Patch = []byte(`[{"op":"add","path":"/spec/size","value":3}]`)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Altered) != 1 || result.Altered[0].String() != ".spec.size" {
		t.Errorf("altered: %v", result.Altered)
	}
	w.expect("a", "{size: 3, secret: '"+secret+"', replicas: 1, mode: auto}")
	server.Close()
	c = w.become(w.get("a"), "{size: 4, secret: '"+secret+"', replicas: 1, mode: auto}")
	_, err = w.writer().Write(t.Context(), c)
	if r := rejected(t, err, apply.Failing); !r.Retry {
		t.Errorf("got %v", err)
	}
}

func (w *widgets) webhook(server *httptest.Server) {
	w.t.Helper()
	fail, none, equivalent, timeout := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Equivalent, int32(5)
	config := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + w.group},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "widgets." + w.group,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules:         []admissionregistrationv1.RuleWithOperations{rules(w.group)},
			FailurePolicy: &fail, SideEffects: &none, MatchPolicy: &equivalent, TimeoutSeconds: &timeout,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	hooks := w.typed().AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := hooks.Create(w.t.Context(), config, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := hooks.Delete(context.WithoutCancel(w.t.Context()), config.Name, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
}

// proxied is a connection through a proxy that does with each write what the test says.
func (w *widgets) proxied(write func(rw http.ResponseWriter, r *http.Request, pass func())) *rest.Config {
	w.t.Helper()
	target, err := url.Parse(w.config.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	if proxy.Transport, err = rest.TransportFor(w.config); err != nil {
		w.t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			proxy.ServeHTTP(rw, r)
			return
		}
		write(rw, r, func() { proxy.ServeHTTP(httptest.NewRecorder(), r) })
	}))
	w.t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// TestUncertain loses the answers of writes that land, and of some that do not.
func TestUncertain(t *testing.T) {
	w := install(t, "uncertain")
	w.typ("v1")
	for name, lose := range map[string]func(http.ResponseWriter, *http.Request, context.CancelFunc){
		"connection-lost": func(http.ResponseWriter, *http.Request, context.CancelFunc) { panic(http.ErrAbortHandler) },
		"asked-to-retry": func(rw http.ResponseWriter, _ *http.Request, _ context.CancelFunc) {
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(http.StatusServiceUnavailable)
		},
		"timeout-of-etcd": func(rw http.ResponseWriter, _ *http.Request, _ context.CancelFunc) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusInternalServerError)
			_, _ = rw.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: request timed out","code":500}`))
		},
		"interrupted": func(_ http.ResponseWriter, r *http.Request, cancel context.CancelFunc) {
			_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the client go
			cancel()
			<-r.Context().Done()
		},
	} {
		for _, lands := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				live := w.create("other", name, "{size: 1}")
				defer w.delete(name)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var sent atomic.Int32
				config := w.proxied(func(rw http.ResponseWriter, r *http.Request, pass func()) {
					sent.Add(1)
					if lands {
						pass()
					}
					lose(rw, r, cancel)
				})
				writer := newWriter(t, config, apply.Options{Timeout: patience})
				_, err := writer.Write(ctx, w.become(live, "{size: 2, replicas: 1, mode: auto}"))
				if !errors.Is(err, apply.ErrUncertain) || errors.Is(err, apply.ErrMoved) {
					t.Errorf("got %v, want ErrUncertain", err)
				}
				if sent.Load() != 1 {
					t.Errorf("sent %d times", sent.Load())
				}
				if moved := w.get(name).GetResourceVersion() != live.GetResourceVersion(); moved != lands {
					t.Errorf("landed: %v", moved)
				}
			})
		}
	}
}

func TestUnavailable(t *testing.T) {
	w := install(t, "unavailable")
	live := w.create("other", "a", "{size: 1}")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: "http://" + listener.Addr().String()}
	listener.Close()
	writer := newWriter(t, config, apply.Options{})
	_, err = writer.Write(t.Context(), w.become(live, "{size: 2, replicas: 1, mode: auto}"))
	if r := rejected(t, err, apply.Unavailable); !r.Retry {
		t.Error("no retry")
	}
	_, err = writer.Delete(t.Context(), w.key("a"), w.resource("v1"), live)
	rejected(t, err, apply.Unavailable)
	_, err = writer.Read(t.Context(), w.key("a"), "v1")
	rejected(t, err, apply.Unavailable)
}

// TestSecretData has the server complain about a Secret: no message shows its data, plain or encoded.
func TestSecretData(t *testing.T) {
	w := install(t, "secretdata")
	encoded := base64.StdEncoding.EncodeToString([]byte("open sesame"))
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a", "namespace": w.namespace},
		"type": "kubernetes.io/dockerconfigjson", "data": map[string]any{".dockerconfigjson": encoded, "bad key": encoded, encoded: encoded},
	}}
	key := kube.Key{Resource: "secrets", Namespace: w.namespace, Name: "a"}
	_, err := w.writer().Create(t.Context(), key, key.GroupResource().WithVersion("v1"), obj.Object, nil)
	rejected(t, err, apply.Invalid)
	if strings.Contains(err.Error(), encoded) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("got %v", err)
	}
}

package informer

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
)

// decoded is what one decoder makes of a stream: each event as text, or why it ended.
func decoded(t testing.TB, serializer runtime.NegotiatedSerializer, from io.Reader) (types []string, objects []runtime.Object, err error) {
	t.Helper()
	object, events, framer, err := runtime.NewClientNegotiator(serializer, metav1.SchemeGroupVersion).StreamDecoder("application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	d := restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(from)), events), object)
	for {
		kind, live, err := d.Decode()
		if err != nil {
			return types, objects, err
		}
		types, objects = append(types, string(kind)), append(objects, live)
	}
}

// emptyFields empties fieldsV1 where the quick decoder does.
func emptyFields(object runtime.Object) {
	live, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	metadata, _ := live.Object["metadata"].(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	for _, e := range entries {
		if entry, ok := e.(map[string]any); ok {
			if _, ok := entry["fieldsV1"].(map[string]any); ok {
				entry["fieldsV1"] = map[string]any{}
			}
		}
	}
}

func theirs() runtime.NegotiatedSerializer {
	return dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
}

var streams = []string{
	`{"type":"ADDED","object":{"apiVersion":"x.dev/v1","kind":"W","metadata":{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:spec":{"f:a":{}}},"time":"2026-01-02T03:04:05Z"},{"fieldsV1":{".":{}}}],"labels":{}},"spec":{"n":1,"f":1.5,"big":9223372036854775807}}}` + "\n" +
		`{"type":"DELETED","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}}` + "\n",
	`{ "object" : { "kind" : "W", "apiVersion" : "x.dev/v1", "spec" : "}]\"\\" } , "other" : [ 1 , true , null , "]" ] , "type" : "MODIFIED" }`,
	`{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","message":"gone","code":410}}`,
	`{"type":"BOOKMARK","object":{"apiVersion":"x.dev/v1","kind":"W","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`,
	`{"type":"\u0041DDED","object":{"apiVersion":"x.dev/v1","kind":"W"}}`,
	`{"type":"ADDED","object":{"kind":"W"}}`, `{"type":"ADDED","object":{"apiVersion":"x.dev/v1"}}`,
	`{"type":"ADDED","object":[]}`, `{"type":"ADDED","object":null}`, `{"type":"ADDED"}`, `{"type":5,"object":{}}`, `{"type":"ODD","object":{}}`,
	`{"type":"ADDED","object":{"apiVersion":"x.dev/v1","kind":"W","metadata":{"managedFields":{"fieldsV1":{}},"managedFields":[{"fieldsV1":{"a":1},"fieldsV1":{"b":2}}]}}}`,
	`{"type":"ADDED","object":{"apiVersion":"x.dev/v1","kind":"W","kind":"V","metadata":[],"metadata":{"managedFields":[[{"fieldsV1":{"a":1}}],{"fieldsV1":null}]}}}`,
	`{"type":"ADDED","object":{"apiVersion":"x.dev/v1","kind":"W"`, `{}{}`, "", " \n", "[]", "x", `{"type":"ADDED",}`, `{"type":"ADDED","object":{"apiVersion":"x.dev/v1","kind":"W","a":}}`,
}

// TestDecode holds the invariant of objectDecoder on streams of every sort, however
// the bytes arrive.
func TestDecode(t *testing.T) {
	for _, stream := range streams {
		for _, from := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			compareDecoders(t, stream, from)
		}
	}
}

// FuzzDecode is TestDecode on any stream. What is not JSON may be told later, or not
// at all, where nobody looks.
func FuzzDecode(f *testing.F) {
	for _, stream := range streams {
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream string) { compareDecoders(t, stream, strings.NewReader(stream)) })
}

func compareDecoders(t *testing.T, stream string, from io.Reader) {
	t.Helper()
	wantTypes, wantObjects, wantErr := decoded(t, theirs(), strings.NewReader(stream))
	types, objects, err := decoded(t, quick{theirs()}, from)
	if !errors.Is(wantErr, io.EOF) { // broken: what came before is the same
		if len(types) < len(wantTypes) {
			t.Fatalf("%q: %d events before %v, want %d before %v", stream, len(types), err, len(wantTypes), wantErr)
		}
		types, objects = types[:len(wantTypes)], objects[:len(wantObjects)]
	} else if !errors.Is(err, io.EOF) {
		t.Fatalf("%q ends with %v, want %v", stream, err, wantErr)
	}
	for i, want := range wantObjects {
		live, ok := objects[i].(*unstructured.Unstructured)
		if _, typed := want.(*unstructured.Unstructured); ok && !typed && (live.GetKind() != "Status" || strings.Contains(live.GetAPIVersion(), "/")) {
			objects[i], wantObjects[i] = nil, nil // see TestKindsLikeTypes
			continue
		}
		emptyFields(objects[i])
		emptyFields(want)
	}
	if diff := cmp.Diff(wantTypes, types, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%q: types differ (-want +got):\n%s", stream, diff)
	}
	if diff := cmp.Diff(wantObjects, objects, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%q: objects differ (-want +got):\n%s", stream, diff)
	}
}

func TestKindsLikeTypes(t *testing.T) {
	for _, kind := range []string{"Status", "APIGroup", "WatchEvent"} {
		event := `{"type":"ADDED","object":{"apiVersion":"x.dev/v1","kind":"` + kind + `","metadata":{"name":"a"}}}`
		_, objects, _ := decoded(t, quick{theirs()}, strings.NewReader(event))
		if len(objects) != 1 {
			t.Fatalf("%s: %d objects, want 1", kind, len(objects))
		}
		if live, ok := objects[0].(*unstructured.Unstructured); !ok || live.GetName() != "a" {
			t.Errorf("a custom resource of kind %s is taken for %T", kind, objects[0])
		}
	}
}

func TestFieldsAreNotDecoded(t *testing.T) {
	_, objects, err := decoded(t, quick{theirs()}, strings.NewReader(streams[0]))
	if len(objects) != 2 || !errors.Is(err, io.EOF) {
		t.Fatalf("%d objects, %v; want 2 and the end", len(objects), err)
	}
	managed := objects[0].(*unstructured.Unstructured).GetManagedFields()
	if len(managed) != 2 || managed[0].Manager != "m" || string(managed[0].FieldsV1.GetRawBytes()) != "{}" {
		t.Errorf("managed fields %v, want two entries without fields", managed)
	}
}

func TestBrokenFrames(t *testing.T) {
	for _, c := range []struct {
		stream string
		want   error
	}{
		{`{"type":"ADDED","obj`, io.ErrUnexpectedEOF},
		{"<html>", errNoObject},
		{`{"a":"` + strings.Repeat("x", maxFrame) + `"}`, errFrameTooLarge},
		{"\n \n", io.EOF},
	} {
		reader := framer{}.NewFrameReader(io.NopCloser(strings.NewReader(c.stream)))
		if _, err := reader.Read(make([]byte, 100)); !errors.Is(err, c.want) {
			t.Errorf("%.20q: %v, want %v", c.stream, err, c.want)
		}
	}
}

// TestFrames reads objects that fit into the buffer, and some that do not.
func TestFrames(t *testing.T) {
	want := []string{`{}`, `{"a":"` + strings.Repeat("é", 5000) + `"}`, `{"b":["\"}",{}]}`}
	reader := framer{}.NewFrameReader(io.NopCloser(strings.NewReader(" " + strings.Join(want, "\n") + "\n")))
	for _, frame := range want {
		var got bytes.Buffer
		piece := make([]byte, 7)
		for {
			n, err := reader.Read(piece)
			got.Write(piece[:n])
			if err == nil {
				break
			}
			if !errors.Is(err, io.ErrShortBuffer) {
				t.Fatal(err)
			}
		}
		if got.String() != frame {
			t.Errorf("read %.50q, want %.50q", got.String(), frame)
		}
	}
	if _, err := reader.Read(make([]byte, 7)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last object: %v, want the end", err)
	}
}

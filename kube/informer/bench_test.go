package informer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// BenchmarkWatch takes an event from the bytes of the watch to the Sink: decoded,
// judged, encoded. The objects have about three kilobytes, and managed fields.
func BenchmarkWatch(b *testing.B) {
	frames := make([][]byte, 100)
	for n := range frames {
		frames[n] = frame(b, n)
	}
	sink := &counting{}
	f := fed(b, sink)
	f.informer.options = &Options{}
	client, err := connect(&rest.Config{
		Host: "http://cluster.test", QPS: -1, Transport: replay{frames: frames, events: b.N},
	})
	if err != nil {
		b.Fatal(err)
	}
	from := &source{informer: f.informer, client: client.Resource(f.informer.resource), feed: f, timeout: time.Minute}
	b.ReportAllocs()
	b.SetBytes(int64(len(frames[0])))
	before := used(b)
	b.ResetTimer()
	events, err := from.WatchWithContext(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for event := range events.ResultChan() {
		if err := f.Update(event.Object); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((used(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	if sink.changed != b.N {
		b.Fatalf("%d events told, want %d", sink.changed, b.N)
	}
}

// frame is an event of a watch as the server writes it.
func frame(b *testing.B, n int) []byte {
	b.Helper()
	live := widget(n)
	owned := map[string]any{}
	for field := range live.Object["spec"].(map[string]any) {
		owned["f:"+field] = map[string]any{}
	}
	content, err := json.Marshal(owned)
	if err != nil {
		b.Fatal(err)
	}
	managed := live.GetManagedFields()
	managed[0].FieldsV1 = metav1.NewFieldsV1(fmt.Sprintf(`{"f:spec":%s}`, content))
	live.SetManagedFields(managed)
	line, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": live})
	if err != nil {
		b.Fatal(err)
	}
	return append(line, '\n')
}

// replay answers every request with so many events.
type replay struct {
	frames [][]byte
	events int
}

func (r replay) RoundTrip(request *http.Request) (*http.Response, error) {
	readers := make([]io.Reader, r.events)
	for n := range readers {
		readers[n] = bytes.NewReader(r.frames[n%len(r.frames)])
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: request,
		Body: io.NopCloser(io.MultiReader(readers...)),
	}, nil
}

// used is the CPU time of this process so far.
func used(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

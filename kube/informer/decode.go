package informer

import (
	"bytes"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/crmirror/crmirror/kube/internal/rawjson"
)

// connect returns a dynamic client that decodes the events of a watch in one pass
// over their bytes. client-go's own reads them six times over: for the end of the
// frame, its kind, the event, the kind of the object, and the object; that was three
// quarters of all the work for a change (BenchmarkWatch).
func connect(config *rest.Config) (dynamic.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.NegotiatedSerializer = quick{config.NegotiatedSerializer}
	config.APIPath = "/" // the dynamic client names paths in full
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return dynamic.New(client), nil
}

// quick is the dynamic client's serializer, but for the events of JSON watches.
type quick struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes returns the dynamic client's, JSON with our way to read a
// stream.
func (q quick) SupportedMediaTypes() []runtime.SerializerInfo {
	types := append([]runtime.SerializerInfo(nil), q.NegotiatedSerializer.SupportedMediaTypes()...)
	for i := range types {
		if stream := types[i].StreamSerializer; stream != nil && types[i].MediaType == runtime.ContentTypeJSON {
			ours := *stream
			ours.Framer, ours.Serializer = framer{stream.Framer}, eventSerializer{stream.Serializer}
			types[i].StreamSerializer = &ours
		}
	}
	return types
}

// DecoderToVersion returns a decoder that is quick for what a watch holds.
func (q quick) DecoderToVersion(decoder runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return objectDecoder{q.NegotiatedSerializer.DecoderToVersion(decoder, version)}
}

// eventSerializer decodes {"type": …, "object": …} without looking into the object.
type eventSerializer struct{ runtime.Serializer }

// Decode decodes an event. Its object shares the bytes of data, as it is decoded
// before the next event is read.
func (s eventSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return s.Serializer.Decode(data, defaults, into)
	}
	var kind, object []byte
	for name, value := range rawjson.Members(data) {
		switch string(name) {
		case `"type"`:
			kind = value
		case `"object"`:
			object = value
		}
	}
	if len(kind) < 2 || kind[0] != '"' || bytes.IndexByte(kind, '\\') >= 0 || len(object) == 0 {
		return s.Serializer.Decode(data, defaults, into)
	}
	event.Type, event.Object.Raw = string(kind[1:len(kind)-1]), object
	return event, nil, nil
}

// objectDecoder decodes the object of an event, without its fieldsV1: they are often
// as long as the rest, and nothing here asks which fields somebody owns.
type objectDecoder struct{ runtime.Decoder }

// Decode decodes what no type is asked for to Unstructured, but for what is no object
// (a Status, something without a kind): that, and all else, is the dynamic client's.
//
// Invariant: what comes out is what the dynamic client makes of the same bytes, but
// for fieldsV1 (FuzzDecode). A custom resource whose kind has the name of a type of
// client-go's own, such as APIGroup, is one all the same (TestKindsLikeTypes).
func (d objectDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if defaults != nil || into != nil {
		return d.Decoder.Decode(data, defaults, into)
	}
	live := &unstructured.Unstructured{}
	if err := json.Unmarshal(withoutFields(data), &live.Object); err != nil {
		return nil, nil, fmt.Errorf("decode object: %w", err)
	}
	kind, _ := live.Object["kind"].(string)
	version, _ := live.Object["apiVersion"].(string)
	if kind == "" || version == "" || kind == "Status" && !strings.Contains(version, "/") {
		return d.Decoder.Decode(data, nil, nil)
	}
	return live, nil, nil
}

// withoutFields returns an object's bytes with every metadata.managedFields[*].fieldsV1
// empty, in a new slice if there are any.
func withoutFields(data []byte) []byte {
	var cuts [][]byte // parts of data, in order; all reach to its capacity, as slices do
	for name, metadata := range rawjson.Members(data) {
		if string(name) != `"metadata"` {
			continue
		}
		for name, managed := range rawjson.Members(metadata) {
			if string(name) != `"managedFields"` {
				continue
			}
			for _, entry := range rawjson.Members(managed) {
				for name, fields := range rawjson.Members(entry) {
					if string(name) == `"fieldsV1"` && fields[0] == '{' {
						cuts = append(cuts, fields)
					}
				}
			}
		}
	}
	if len(cuts) == 0 {
		return data
	}
	out, at := make([]byte, 0, len(data)), 0
	for _, cut := range cuts {
		begin := cap(data) - cap(cut)
		out = append(append(out, data[at:begin]...), "{}"...)
		at = begin + len(cut)
	}
	return append(out, data[at:]...)
}

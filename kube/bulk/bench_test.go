package bulk_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/crmirror/crmirror/kube/bulk"
)

// BenchmarkList compares a listing of 2,000 objects of 2 KB with client-go's own.
func BenchmarkList(b *testing.B) {
	w := install(b, "bench")
	each(2000, 16, func(i int) { w.create(fmt.Sprintf("w%d", i), bulky(i)) })
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			list, err := w.in().List(b.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 2000 {
				b.Fatal(len(list.Items), err)
			}
		}
	})
	b.Run("List", func(b *testing.B) {
		for b.Loop() {
			n := 0
			_, err := w.client.List(b.Context(), w.resource(), "", "", func(*unstructured.Unstructured) error { n++; return nil })
			if err != nil || n != 2000 {
				b.Fatal(n, err)
			}
		}
	})
}

// BenchmarkCreate compares creates of objects of 2 KB, 16 at a time, with client-go's own.
func BenchmarkCreate(b *testing.B) {
	w := install(b, "bench")
	n := 0
	run := func(create func(obj map[string]any) error) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				from := n
				n += 200
				each(200, 16, func(i int) {
					if err := create(w.object(fmt.Sprintf("w%d", from+i), bulky(i))); err != nil {
						b.Error(err)
					}
				})
			}
			b.ReportMetric(200*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
		}
	}
	b.Run("plain", run(func(obj map[string]any) error {
		_, err := w.in().Create(b.Context(), &unstructured.Unstructured{Object: obj}, metav1.CreateOptions{FieldManager: bulk.FieldManager})
		return err
	}))
	b.Run("Create", run(func(obj map[string]any) error {
		_, err := w.client.Create(b.Context(), w.resource(), obj, false)
		return err
	}))
}

// bulky is the spec of an object of 2 KB.
func bulky(i int) string {
	var options []string
	for n := range 30 {
		options = append(options, fmt.Sprintf("option-%02d: 'value %d of object %d, of some length'", n, n, i))
	}
	return fmt.Sprintf("{size: %d, options: {%s}, ports: [{port: 80, name: http}, {port: 443, name: https}]}", i, strings.Join(options, ", "))
}

// each calls do for the numbers below n, some at a time.
func each(n, workers int, do func(i int)) {
	numbers := make(chan int)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := range numbers {
				do(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	group.Wait()
}

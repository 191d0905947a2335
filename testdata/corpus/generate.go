//go:build ignore

// Generate writes the many plain objects of the corpus; the files called
// peculiar.yaml are written by hand. Run it in this folder: go run generate.go
package main

import (
	"fmt"
	"os"
	"strings"
)

var (
	countries = []string{"DE", "FR", "NO", "PT", "JP", "BR"} // NO is no boolean
	goods     = []string{"teapot", "kettle", "lamp", "rug", "clock", "chair", "mirror", "basket", "vase", "bench"}
	colours   = []string{"red", "green", "blue", "off-white"}
	teams     = []string{"north", "south", "harbour"}
)

func main() {
	write("shop/crs/stores.yaml", each(len(countries), store))
	write("shop/crs/products.yaml", each(60, product))
	write("shop/crs/orders.yaml", each(36, order))
	write("mesh/crs/routes.yaml", each(45, route))
	write("backup/crs/schedules.yaml", each(24, schedule))
	write("certs/crs/certificates.yaml", each(30, certificate))
	write("dashboards/crs/dashboards.yaml", each(24, dashboard))
}

// each joins the documents for 0 to n-1.
func each(n int, document func(int) string) string {
	documents := make([]string, n)
	for i := range documents {
		documents[i] = strings.TrimLeft(document(i), "\n")
	}
	return strings.Join(documents, "---\n")
}

func write(path, content string) {
	if err := os.WriteFile(path, []byte("# Written by generate.go.\n"+content), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pick returns one of the values, by number.
func pick(values []string, i int) string { return values[i%len(values)] }

func store(i int) string {
	version := "v1"
	if i%3 == 2 {
		version = "v1beta1"
	}
	return fmt.Sprintf(`
apiVersion: shop.example.dev/%s
kind: Store
metadata:
  name: store-%02d
  namespace: shop
  labels: {app.kubernetes.io/part-of: shop, country: "%s"}
spec:
  country: "%s"
  taxRate: %d.5
  hours: {"mon-fri": "09:00-18:30", sat: "10:00-16:00"}
  contacts:
  - {role: manager, mail: store-%02d@shop.example.dev, phone: "+49 30 0%d"}
  - {role: press, phone: null}
status:
  phase: Open
  orders: %d
`, version, i, pick(countries, i), pick(countries, i), 15+i, i, 1000+i, 9007199254740993+i)
}

func product(i int) string {
	stock := fmt.Sprint(i * 3)
	if i%4 == 0 {
		stock = "plenty"
	}
	return fmt.Sprintf(`
apiVersion: shop.example.dev/v1
kind: Product
metadata:
  name: %s-%s-%02d
  namespace: shop
  labels: {app.kubernetes.io/part-of: shop, line: %s}
spec:
  title: %s, %s
  sku: "%05d"
  price: %d.%02d
  stock: %s
  weightGrams: %d
  tags: [%s, %s]
  attributes:
    size: {width: %d, height: %d, unit: cm}
    since: "%d-0%d-01"
    organic: %t
  description: |
    A %s %s.

    Care: wipe with a dry cloth.
`, pick(colours, i), pick(goods, i), i, pick(goods, i), pick(goods, i), pick(colours, i), 700+i, 10+i, i,
		stock, 250*(i+1), pick(colours, i), pick(goods, i), 20+i, 30+i, 2019+i%5, 1+i%9, i%2 == 0,
		pick(colours, i), pick(goods, i))
}

func order(i int) string {
	finalizers := ""
	if i%6 == 0 {
		finalizers = "\n  finalizers: [shop.example.dev/refund]"
	}
	return fmt.Sprintf(`
apiVersion: shop.example.dev/v1
kind: Order
metadata:
  generateName: order-
  namespace: shop
  annotations: {shop.example.dev/channel: "%s"}%s
  ownerReferences:
  - {apiVersion: shop.example.dev/v1, kind: Store, name: store-%02d, controller: true, blockOwnerDeletion: true}
spec:
  customer: customer-%03d
  lines:
  - {sku: "%05d", count: %d}
  - {sku: "%05d", count: 1}
status:
  phase: %s
  sent: %d
`, pick([]string{"web", "phone", "off"}, i), finalizers, i%len(countries), i, 700+i, 1+i%4, 701+i,
		pick([]string{"New", "Paid", "Sent", "Lost"}, i), i%2)
}

func route(i int) string {
	return fmt.Sprintf(`
apiVersion: mesh.example.dev/v1
kind: Route
metadata:
  name: route-%02d
  namespace: team-%s
  labels: {team: %s}
spec:
  hosts: ["*.%s.example.dev", "%s.example.dev"]
  listeners:
  - {port: 80, protocol: HTTP}
  - {port: 443, protocol: HTTPS, timeout: %ds}
  - {port: 443, protocol: QUIC}
  rules:
  - name: main
    path: /%s
    weight: %d
    targetPort: %d
    headers: {x-team: %s, "x-canary": "%t"}
  - name: rest
    targetPort: http
`, i, pick(teams, i), pick(teams, i), pick(teams, i), pick(goods, i), 5+i, pick(goods, i), 1+i, 8000+i, pick(teams, i), i%2 == 0)
}

func schedule(i int) string {
	return fmt.Sprintf(`
apiVersion: backup.example.dev/v2
kind: Schedule
metadata:
  name: nightly-%02d
  namespace: team-%s
spec:
  cron: "%d %d * * *"
  keep: %d
  location: location-%d
  hooks:
  - name: dump
    script: |
      #!/bin/sh
      set -eu
      # at %d o'clock
      for database in $(list-databases); do
      	dump "$database" > /backup/"$database".sql
      done

      echo "done: %s"
  template:
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: result-%02d}
    data: {retries: "%d"}
status:
  lastRun: "2026-11-%02dT0%d:00:00Z"
`, i, pick(teams, i), i*2, i%9, 3+i, i%4, i%9, pick(goods, i), i, i, 1+i, i%9)
}

func certificate(i int) string {
	kind := "Issuer"
	if i%3 == 0 {
		kind = "ClusterIssuer"
	}
	return fmt.Sprintf(`
apiVersion: certs.example.dev/v1
kind: Certificate
metadata:
  name: %s-tls-%02d
  namespace: team-%s
spec:
  secretName: %s-tls-%02d
  dnsNames: [%s.example.dev, www.%s.example.dev]
  issuerRef: {name: issuer-%d, kind: %s}
  serialNumber: "0%d"
  rotation: "%s"
status:
  notAfter: "2027-0%d-15T12:00:00Z"
  revision: %d
`, pick(goods, i), i, pick(teams, i), pick(goods, i), i, pick(goods, i), pick(goods, i), i%5, kind,
		1000+i, pick([]string{"on", "off", "yes", "no", "Always", "Never"}, i), 1+i%9, i)
}

func dashboard(i int) string {
	return fmt.Sprintf(`
apiVersion: dashboards.example.dev/v1beta1
kind: Dashboard
metadata:
  name: %s-%02d
  namespace: dashboards
  annotations: {dashboards.example.dev/revision: "%d"}
spec:
  folder: folder-%s
  json: |-
    {
      "title": "%s 📈 %d",
      "panels": [
        {"id": %d, "type": "graph", "targets": [{"expr": "rate(sales_total{item=\"%s\"}[5m])"}]}
      ]
    }
  model:
    refresh: %ds
    timezone: ""
    panels:
    - {id: %d, gridPos: {h: 8, w: 12, x: 0, y: %d}, datasource: null, links: []}
`, pick(goods, i), i, i, pick(teams, i), pick(goods, i), i, i, pick(goods, i), 10+i, i, i*8)
}

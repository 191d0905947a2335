package main

import "github.com/prometheus/prometheus/promql/parser"

func main() { _, _ = parser.ParseExpr("up") }

package main

import (
	"io"

	"github.com/sirupsen/logrus"

	"github.com/crmirror/crmirror/cmd/internal/config"
)

// newLogger logs as the configuration says; it was validated before.
func newLogger(cfg config.Log, w io.Writer) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(w)
	if cfg.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	}
	if level, err := logrus.ParseLevel(cfg.Level); err == nil {
		log.SetLevel(level)
	}
	return log
}

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
	log.AddHook(nextSteps{})
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

// nextSteps adds to a logged error what a person can do about it: the agent does
// not end with most errors, so nobody else would say.
type nextSteps struct{}

func (nextSteps) Levels() []logrus.Level { return []logrus.Level{logrus.ErrorLevel, logrus.WarnLevel} }

func (nextSteps) Fire(entry *logrus.Entry) error {
	if err, ok := entry.Data[logrus.ErrorKey].(error); ok {
		if next := nextStep(err); next != "" {
			entry.Data["next"] = next
		}
	}
	return nil
}

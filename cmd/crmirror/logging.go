package main

import (
	"io"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/crmirror/crmirror/cmd/internal/config"
	"github.com/crmirror/crmirror/sync"
)

// newLogger logs as the configuration says; it was validated before.
func newLogger(cfg config.Log, w io.Writer) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(w)
	log.AddHook(nextSteps{})
	log.AddHook(oneLine{})
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
		if next := nextStep(err, false); next != "" {
			entry.Data["next"] = next
		}
	}
	return nil
}

// oneLine lets each message and field of the log be one line: errors that were joined are
// told with "; " between them. The formats escape whatever else is not printable.
type oneLine struct{}

func (oneLine) Levels() []logrus.Level { return logrus.AllLevels }

func (oneLine) Fire(entry *logrus.Entry) error {
	entry.Message = withoutBreaks(entry.Message)
	for name, value := range entry.Data {
		switch x := value.(type) {
		case error:
			entry.Data[name] = withoutBreaks(x.Error())
		case string:
			entry.Data[name] = withoutBreaks(x)
		}
	}
	return nil
}

func withoutBreaks(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	return sync.Line(text)
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	gokit "github.com/go-kit/log"
)

// newLogger writes to standard error in the configured format.
func newLogger(c LogConfig) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // checked by Config.problems
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

// goKitLogger lets dskit, which logs through go-kit, log through slog.
type goKitLogger struct{ logger *slog.Logger }

var _ gokit.Logger = goKitLogger{}

// Log implements log.Logger of go-kit: alternating keys and values, of which
// "level" and "msg" mean what they do in slog.
func (l goKitLogger) Log(keyvals ...any) error {
	level, msg := slog.LevelInfo, ""
	var rest []any
	for i := 0; i+1 < len(keyvals); i += 2 {
		key, value := fmt.Sprint(keyvals[i]), fmt.Sprint(keyvals[i+1])
		switch key {
		case "level":
			_ = level.UnmarshalText([]byte(value)) // an unknown level stays info
		case "msg":
			msg = value
		case "grpc":
			if !strings.HasPrefix(value, privatePrefix) { // nothing is served there, and nobody can reach it
				rest = append(rest, key, value)
			}
		default:
			rest = append(rest, key, value)
		}
	}
	l.logger.Log(context.Background(), level, msg, rest...)
	return nil
}

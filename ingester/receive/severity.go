package receive

import "strings"

// SeverityNumber returns OTLP's number for a level as senders write it, 0 for one
// that it does not know. The ranges are those of OTLP's data model: 1 trace, 5
// debug, 9 info, 13 warning, 17 error, 21 fatal; syslog's notice, critical, alert
// and emergency are placed between them as its appendix does. Digits are syslog's
// severities.
func SeverityNumber(level string) int {
	switch strings.ToLower(level) {
	case "trace", "verbose":
		return 1
	case "debug", "dbg", "d", "7":
		return 5
	case "info", "information", "informational", "i", "ok", "success", "6":
		return 9
	case "notice", "5":
		return 10
	case "warn", "warning", "w", "4":
		return 13
	case "error", "err", "e", "3":
		return 17
	case "critical", "crit", "2":
		return 18
	case "alert", "1":
		return 19
	case "fatal", "f", "panic":
		return 21
	case "emergency", "emerg", "0":
		return 22
	}
	return 0
}

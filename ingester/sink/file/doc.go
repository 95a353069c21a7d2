// Package file is the sink that keeps telemetry in files: one OTLP request a line, as
// JSON, which the Collector's otlpjsonfile receiver and jq read.
//
//	PATH/logs/logs-00000007-20261130T101500Z.jsonl       being written
//	PATH/logs/logs-00000006-20261130T091500Z.jsonl.zst   closed and compressed
//	PATH/traces/...
//
// A write is stored when all its lines have been given to the operating system, or
// with fsync when the disk has them. The file that is being written holds whole lines
// at any time but for the last one, which may be half there when the process is
// killed; nobody was told that it is stored. The next start cuts it off and begins a
// new file, so no line is ever torn in the middle of a file. A write that fails half
// way, on a full disk, say, is taken back, and the sender keeps its data.
//
// Files may be deleted, renamed or shortened under the process's feet, by hand or by
// logrotate. Before and after each write the path is compared with the open file (two
// stats, a few microseconds together). If they are not the same, the lines are taken back
// and written to a new file, in a new folder if that is gone, too; if that fails, the
// write fails. A file under a name of somebody else's choice is not compressed, and
// max_bytes does not count it.
//
// A file is closed when it is as large or as old as the options say. Then it is
// compressed beside itself and replaced when the compressed one is whole on the disk.
// Each stream keeps max_bytes; beyond that its oldest files go.
//
//	Write -> [ stream: one file that grows ]      under the stream's lock
//	Run   -> close by age, compress, delete       in the background
package file

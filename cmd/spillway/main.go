// Command spillway is a telemetry ingester that gives every class of telemetry
// its budget.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// version is set by the linker; see the Makefile.
var version = "dev"

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole command line: exit code 0, or 1 with each problem on a line
// of stderr.
func run(args []string, stdout, stderr io.Writer) int {
	app := kingpin.New("spillway", "A telemetry ingester that gives every class of telemetry its budget.")
	code := -1
	app.Terminate(func(c int) { code = c })
	app.UsageWriter(untilEnd{stdout, &code}).ErrorWriter(stderr)
	app.HelpFlag.Short('h').Help("Show help.")
	app.UsageTemplate(usageTemplate)

	serveCmd := app.Command("serve", "Take telemetry in.").HelpLong(serveHelp)
	configFile := serveCmd.Flag("config.file", "The configuration.").Required().String()

	check := app.Command("check", "Check a file before it is put in force.")
	checkPolicy := check.Command("policy", "Check a policy and show what each class may spend.").HelpLong(checkPolicyHelp)
	policyFile := checkPolicy.Arg("FILE", "The policy.").Required().String()
	ingesters := checkPolicy.Flag("ingesters", "N, the number of ingesters that the policy is divided by.").Default("1").Int()
	policyFormat := checkPolicy.Flag("format", "text or json.").Default("text").Enum("text", "json")
	checkConfig := check.Command("config", "Check a configuration with all the files that it names.").HelpLong(checkConfigHelp)
	checkedFile := checkConfig.Arg("FILE", "The configuration.").Required().String()
	configFormat := checkConfig.Flag("format", "text or json.").Default("text").Enum("text", "json")

	explainCmd := app.Command("explain", "Say what happens to a series, and why.").HelpLong(explainHelp)
	explain := explainOptions{}
	explainCmd.Arg("LABELS", "The series, as PromQL writes it.").Required().StringVar(&explain.labels)
	explainCmd.Flag("config.file", "The configuration to explain it with.").StringVar(&explain.configFile)
	explainCmd.Flag("url", "A running Spillway to ask instead, which knows its tokens. Example: --url=http://127.0.0.1:9900").StringVar(&explain.url)
	explainCmd.Flag("stream", "metrics, logs, traces, events or rum.").Default("metrics").StringVar(&explain.stream)
	explainCmd.Flag("format", "text or json.").Default("text").EnumVar(&explain.format, "text", "json")

	loadCmd, generated := loadCommand(app)
	testCmd, tests := testCommand(app)
	completionCmd, shell := completionCommand(app)
	planCmd, plans := planCommand(app)
	simulateCmd, simulation := simulateCommand(app)

	keyCmd, key := keyCommand(app)

	versionCmd := app.Command("version", "Print the version.")

	command, err := app.Parse(args)
	switch {
	case code >= 0:
		return code // --help
	case err != nil:
		return fail(stderr, hint(err, app.Model(), args))
	}
	switch command {
	case serveCmd.FullCommand():
		err = serve(context.Background(), *configFile)
	case checkPolicy.FullCommand():
		err = checkPolicyFile(stdout, *policyFile, *ingesters, *policyFormat)
	case checkConfig.FullCommand():
		err = checkConfigFile(stdout, *checkedFile, *configFormat)
	case explainCmd.FullCommand():
		err = explain.run(stdout)
	case loadCmd.FullCommand():
		err = generated.run(stdout, stderr)
	case keyCmd.FullCommand():
		err = key.run(stdout)
	case testCmd.FullCommand():
		err = tests.run(stdout)
	case planCmd.FullCommand():
		err = plans.run(stdout, stderr)
	case simulateCmd.FullCommand():
		err = simulation.run(stdout, stderr)
	case completionCmd.FullCommand():
		err = writeCompletion(stdout, *shell)
	case versionCmd.FullCommand():
		_, err = fmt.Fprintln(stdout, "spillway", version)
	}
	if err != nil {
		return fail(stderr, err)
	}
	return 0
}

// fail prints each problem on a line of its own.
func fail(stderr io.Writer, err error) int {
	name := painter(stderr)("spillway:", "bad")
	for _, line := range strings.Split(strings.TrimSpace(err.Error()), "\n") {
		fmt.Fprintln(stderr, name, line)
	}
	return 1
}

package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// usageTemplate shows the commands with a line each, or one command with its
// examples as they are written: they are meant to be copied.
const usageTemplate = `{{define "Use"}}{{if .FlagSummary}} {{.FlagSummary}}{{end}}{{range .Args}} {{if not .Required}}[{{end}}<{{.Name}}>{{if .Value|IsCumulative}}...{{end}}{{if not .Required}}]{{end}}{{end}}{{end -}}
{{if .Context.SelectedCommand -}}
usage: {{.App.Name}} {{.Context.SelectedCommand}}{{template "Use" .Context.SelectedCommand}}{{if .Context.SelectedCommand.Commands}} <command>{{end}}

{{.Context.SelectedCommand.Help|Wrap 0}}{{if .Context.SelectedCommand.HelpLong}}
{{.Context.SelectedCommand.HelpLong}}{{end}}{{else -}}
usage: {{.App.Name}} <command> [<flags>] [<args>]

{{.App.Help|Wrap 0}}{{end}}
{{if .Context.Args}}Args:
{{.Context.Args|ArgsToTwoColumns|FormatTwoColumns}}
{{end}}{{if .Context.Flags}}Flags:
{{.Context.Flags|FlagsToTwoColumns|FormatTwoColumns}}
{{end}}{{if not .Context.SelectedCommand}}Commands:
{{range .App.FlattenedCommands}}{{if not .Hidden}}  {{.FullCommand}}
      {{.Help}}
{{end}}{{end}}
` + "`spillway COMMAND --help`" + ` shows a command with examples.
{{else if .Context.SelectedCommand.Commands}}Commands:
{{range .Context.SelectedCommand.FlattenedCommands}}{{if not .Hidden}}  {{.FullCommand}}
      {{.Help}}
{{end}}{{end}}{{end}}`

// What the commands that stand in main.go teach.
const (
	serveHelp = `It runs until SIGINT or SIGTERM; then what is in work is finished first. SIGHUP, POST
/-/reload and a changed file put a new configuration in force.

Examples:

    spillway serve --config.file=spillway.yaml
    curl http://127.0.0.1:9900/            # what is served; a browser sees the page
`
	checkPolicyHelp = `Every problem has a line with its place in the file. Warnings are about what is
allowed and probably not meant.

Examples:

    spillway check policy policy.yaml --ingesters 4
    spillway check policy - < policy.yaml
    spillway check policy policy.yaml --ingesters 4 --format=json
`
	checkConfigHelp = `It prints the configuration with every default, and what each class may spend.

Examples:

    spillway check config spillway.yaml
    spillway check config spillway.yaml --format=json
`
	explainHelp = `Every relabel rule, every matcher of every rule, the class and its bucket. With a
configuration the buckets are full; a running Spillway knows its tokens, and what the
class was sent and lost in the last 30 s. Nothing is taken from them.

Examples:

    spillway explain --config.file=spillway.yaml '{__name__="up", team="a"}'
    spillway explain --url=http://127.0.0.1:9900 'up{team="a"}'
    spillway explain --url=http://127.0.0.1:9900 --stream=logs '{"service.name"="shop", level="debug"}'
`
)

func completionCommand(app *kingpin.Application) (*kingpin.CmdClause, *string) {
	shell := new(string)
	c := app.Command("completion", "Print what makes a shell complete commands and flags.")
	c.HelpLong(`Examples:

    source <(spillway completion bash)                                   # this shell
    spillway completion bash > /etc/bash_completion.d/spillway           # every shell
    spillway completion zsh > "${fpath[1]}/_spillway"
    spillway completion fish > ~/.config/fish/completions/spillway.fish
`)
	c.Arg("SHELL", "bash, zsh or fish.").Required().HintOptions("bash", "zsh", "fish").EnumVar(shell, "bash", "zsh", "fish")
	return c, shell
}

// writeCompletion prints a script that asks the program itself what may come next,
// so it never falls behind.
func writeCompletion(out io.Writer, shell string) error {
	scripts := map[string]string{
		"bash": `_spillway() {
    local cur="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=( $(compgen -W "$("${COMP_WORDS[0]}" --completion-bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$cur") )
}
complete -o default -F _spillway spillway
`,
		"zsh": `#compdef spillway
_spillway() {
    local -a matches
    matches=(${(f)"$("${words[1]}" --completion-bash "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
    compadd -a matches
    if [[ $compstate[nmatches] -eq 0 && $words[$CURRENT] != -* ]]; then
        _files
    fi
}
if [[ "$funcstack[1]" == _spillway ]]; then
    _spillway "$@"
else
    compdef _spillway spillway
fi
`,
		"fish": `function __spillway_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] --completion-bash $words[2..-1] 2>/dev/null
end
complete -c spillway -a '(__spillway_complete)'
`,
	}
	_, err := io.WriteString(out, scripts[shell])
	return err
}

// quoted finds the word that kingpin complains about.
var quoted = regexp.MustCompile(`["']([^"']+)["']`)

// hint adds to a complaint about the command line what was probably meant, and
// where help is.
func hint(err error, app *kingpin.ApplicationModel, args []string) error {
	help := "`spillway --help` lists the commands"
	for _, c := range app.FlattenedCommands() {
		if strings.HasPrefix(strings.Join(args, " ")+" ", c.FullCommand+" ") {
			help = fmt.Sprintf("`spillway %s --help` has examples", c.FullCommand)
		}
	}
	text := err.Error()
	if word := quoted.FindStringSubmatch(text); word != nil && strings.Contains(text, "unknown") || strings.Contains(text, "expected command") {
		if meant := meantBy(word[1], app, args); meant != "" {
			return fmt.Errorf("%s; did you mean %s? %s", text, meant, help)
		}
	}
	return errors.New(text + "; " + help)
}

// meantBy is what a word was probably meant to be: the one flag of the command that
// begins with it, or what is spelled much like it.
func meantBy(word string, app *kingpin.ApplicationModel, args []string) string {
	var longer []string
	for _, c := range app.FlattenedCommands() {
		if !strings.HasPrefix(strings.Join(args, " ")+" ", c.FullCommand+" ") {
			continue
		}
		for _, f := range c.Flags {
			if strings.HasPrefix("--"+f.Name, word) {
				longer = append(longer, "--"+f.Name)
			}
		}
	}
	if len(longer) == 1 && strings.HasPrefix(word, "--") {
		return longer[0]
	}
	return nearest(word, names(app))
}

// names are all commands and flags.
func names(app *kingpin.ApplicationModel) (all []string) {
	for _, c := range app.FlattenedCommands() {
		all = append(all, strings.Fields(c.FullCommand)...)
		for _, f := range c.Flags {
			all = append(all, "--"+f.Name)
		}
	}
	return all
}

// nearest is the word that takes the fewest edits, if they are few for its length.
func nearest(word string, words []string) string {
	best, meant := 1+len(word)/3, ""
	for _, w := range words {
		if d := edits(word, w); d < best {
			best, meant = d, w
		}
	}
	return meant
}

// edits counts the letters to insert, delete or replace between two words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(diagonal+cost, above+1, row[j]+1)
			diagonal = above
		}
	}
	return row[len(b)]
}

// untilEnd lets help through once: kingpin goes on after it has asked to end, and
// would print it again.
type untilEnd struct {
	w    io.Writer
	code *int // of the end, -1 before it
}

func (u untilEnd) Write(p []byte) (int, error) {
	if *u.code >= 0 {
		return len(p), nil
	}
	return u.w.Write(p)
}

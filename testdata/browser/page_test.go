package browser

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite page.png, the picture in README.md")

const (
	enough = `
streams:
  metrics:
    rate: 40000
    burst: 80000
    default: {rate: 15000}
    classes: &classes
      - {name: checkout, rate: 8000}
      - {name: search, rate: 8000}
      - {name: batch-jobs, rate: 8000}
      - {name: experiments, rate: 1000}
    rules:
      - {class: checkout, matchers: ['team=~"team-0[0-4]"']}
      - {class: search, matchers: ['team=~"team-0[5-9]"']}
      - {class: batch-jobs, matchers: ['team=~"team-1[0-4]"']}
      - {class: experiments, matchers: ['team="lab"']}
`
	// tooLittle takes batch-jobs below what it sends, experiments to nothing, and
	// names a class that nobody has defined.
	tooLittle = `
streams:
  metrics:
    rate: 40000
    burst: 80000
    default: {rate: 15000}
    classes:
      - {name: checkout, rate: 8000}
      - {name: search, rate: 8000}
      - {name: batch-jobs, rate: 1200}
      - {name: experiments, rate: 0}
    rules:
      - {class: checkout, matchers: ['team=~"team-0[0-4]"']}
      - {class: search, matchers: ['team=~"team-0[5-9]"']}
      - {class: batch-jobs, matchers: ['team=~"team-1[0-4]"']}
      - {class: experiments, matchers: ['team="lab"']}
      - {class: mobile, matchers: ['team="team-19"']}
`
	refused = "streams: {metrics: {rate: 100, burst: 0, classes: [{name: a, rate: 300}]}}"
)

func row(class string) string {
	return "document.getElementById(" + quote("class-metrics-"+class) + ")"
}

// TestPage follows a person through a day with the page: all is well, a policy is
// edited, a class turns red, explain says why, a change is refused, the server
// goes and comes back. At the end the browser must not have complained about
// anything: the content security policy of the page is enforced by it.
func TestPage(t *testing.T) {
	b := openTab(t)
	s := newSpillway(t, enough)
	load := s.load(t, 4000)
	b.look(t, 1280, 900, "light")
	b.do(t, chromedp.Navigate("http://"+s.address+"/"))

	b.shows(t, `document.getElementById("live").dataset.state === "live"`)
	b.shows(t, row("checkout")+`.querySelector(".c1").textContent !== "0"`)
	require.Equal(t, "Nothing is being dropped", b.text(t, `document.getElementById("headline").textContent`))
	require.Equal(t, "good", b.text(t, row("batch-jobs")+`.dataset.state`))

	s.policy(t, tooLittle)
	b.shows(t, row("batch-jobs")+`.dataset.state === "bad"`)
	b.shows(t, row("mobile")+`?.dataset.state === "bad"`)
	b.shows(t, `document.getElementById("announce").textContent.includes("batch-jobs of metrics")`)
	require.Contains(t, b.text(t, row("batch-jobs")+`.querySelector(".why").textContent`), "may spend 300 items/s here")
	require.Contains(t, b.text(t, row("mobile")+`.textContent`), "unconfigured")
	require.Equal(t, "warn", b.text(t, row("experiments")+`.dataset.state`), "rate 0 stands out before anything is sent")
	require.Equal(t, "good", b.text(t, row("search")+`.dataset.state`), "a class within its budget is left alone")
	require.Contains(t, b.text(t, `document.getElementById("headline").textContent`), "2 classes are dropping")

	if *update {
		somewhatLater(t, s)
	}
	explainByKeyboard(t, b)
	hostileLabels(t, b)
	shapes(t, b)

	s.policy(t, refused)
	b.shows(t, `!document.getElementById("refused").hidden`)
	require.Contains(t, b.text(t, `document.getElementById("refused").textContent`), "streams.metrics.burst")
	require.Equal(t, "bad", b.text(t, row("batch-jobs")+`.dataset.state`), "the one before stays in force")
	s.policy(t, enough)
	b.shows(t, `document.getElementById("refused").hidden && !`+row("mobile"))
	b.shows(t, row("batch-jobs")+`.dataset.state === "good"`) // drops of before are not held against the new policy

	kill(load)
	eventually(t, "every item has one outcome", func() bool { return s.conserved(t) })
	away(t, b, s)
	require.Empty(t, b.complaints())
}

// explainByKeyboard uses no mouse: Tab to the field, type, Enter, and the answer
// has the focus.
func explainByKeyboard(t *testing.T, b *tab) {
	b.run(t, `document.activeElement.blur()`)
	first := ""
	for range 30 {
		b.do(t, chromedp.KeyEvent(kb.Tab))
		at := b.text(t, `document.activeElement.id || document.activeElement.textContent`)
		if first == "" {
			first = at
		}
		if at == "explain-labels" {
			break
		}
	}
	require.Equal(t, "Skip to the classes", first)
	require.Equal(t, "explain-labels", b.text(t, `document.activeElement.id`), "Tab does not lead to the field")
	b.do(t, chromedp.KeyEvent(`cpu_seconds_total{team="team-12", environment="prod"} 17`), chromedp.KeyEvent(kb.Enter))
	b.shows(t, `document.querySelector(".verdict")`)
	require.Contains(t, b.text(t, `document.activeElement.className`), "verdict")
	result := b.text(t, `document.getElementById("explain-result").textContent`)
	for _, part := range []string{
		"Relabel rule 0 changes nothing", "Relabel rule 1 changes it", `env = "prod"`,
		"Rule 2 is the first that matches: it belongs to the class batch-jobs", "300 tokens/s on this ingester",
	} {
		require.Contains(t, result, part)
	}
}

// explain puts a text into the field and presses Enter.
func explain(t *testing.T, b *tab, labels string) {
	b.run(t, `{ const f = document.getElementById("explain-labels"); f.value = `+quote(labels)+`; f.focus(); }`)
	b.do(t, chromedp.KeyEvent(kb.Enter))
}

// hostileLabels puts markup where senders can: it must come out as text.
func hostileLabels(t *testing.T, b *tab) {
	const attack = `{__name__="up", team="<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"}`
	explain(t, b, attack)
	b.shows(t, `document.getElementById("explain-result").textContent.includes("onerror")`)
	require.Equal(t, "0", b.text(t, `document.querySelectorAll("#explain-result img, #explain-result script").length`))
	require.Equal(t, "Spillway", b.text(t, `document.title`))

	explain(t, b, `{team=}`)
	b.shows(t, `document.getElementById("explain-labels").getAttribute("aria-invalid") === "true"`)
	require.Contains(t, b.text(t, `document.getElementById("explain-result").textContent`), "cannot be read")

	explain(t, b, `{"__name__": "debug_heap", "team": "team-03"}`)
	b.shows(t, `document.getElementById("explain-result").textContent.includes("Relabel rule 0 drops it")`)
	explain(t, b, `cpu_seconds_total{team="team-12", environment="prod"}`)
	b.shows(t, `document.getElementById("explain-result").textContent.includes("batch-jobs")`)
}

// shapes looks at the page in both schemes and in three widths: nothing sticks out,
// every text has contrast, and what a screen reader is told stays a table.
func shapes(t *testing.T, b *tab) {
	for _, shape := range []struct {
		name          string
		width, height int64
		scheme        string
	}{
		{"wide-light", 1280, 900, "light"}, {"wide-dark", 1280, 900, "dark"},
		{"middle-light", 820, 1100, "light"}, {"narrow-light", 390, 844, "light"}, {"narrow-dark", 390, 844, "dark"}, {"tiny-dark", 320, 640, "dark"},
	} {
		b.look(t, shape.width, shape.height, shape.scheme)
		b.run(t, `window.scrollTo(0, 0)`)
		require.Equal(t, "true", b.text(t, `document.documentElement.scrollWidth <= window.innerWidth`), "%s: something sticks out: %s", shape.name,
			b.text(t, `[...document.querySelectorAll("body *")].filter((n) => n.getBoundingClientRect().right > window.innerWidth + 1).slice(0, 5).map((n) => n.outerHTML.slice(0, 90)).join(" | ")`))
		require.Empty(t, b.text(t, lowContrast), "%s: text with a contrast below 4.5", shape.name)
		requireTree(t, b, shape.name)
		b.picture(t, shape.name, true)
	}
	b.look(t, 1200, 816, "light")
	b.run(t, `document.activeElement.blur(); window.scrollTo(0, 0); document.getElementById("about").hidden = true`)
	png := b.picture(t, "readme", false)
	if *update {
		require.Less(t, len(png), 200_000, "README's picture is to stay small")
		require.NoError(t, os.WriteFile("page.png", png, 0o644))
	}
}

// somewhatLater waits until the curves have two minutes to show, a peak included.
func somewhatLater(t *testing.T, s *spillway) {
	for sequence := 6; sequence <= 30; sequence += 6 {
		eventually(t, "samples", func() bool { return s.sequence(t) >= sequence })
		if sequence == 18 {
			peak := s.load(t, 3000)
			eventually(t, "a peak", func() bool { return s.sequence(t) >= 21 })
			kill(peak)
		}
	}
}

// away kills the server and starts it again.
func away(t *testing.T, b *tab, s *spillway) {
	kill(s.cmd)
	b.shows(t, `!document.getElementById("away").hidden && document.getElementById("live").dataset.state === "away"`)
	require.True(t, strings.HasPrefix(b.text(t, `document.getElementById("away").textContent`), "The server is not answering"))
	b.picture(t, "away", false)
	s.start(t)
	b.shows(t, `document.getElementById("away").hidden && document.getElementById("live").dataset.state === "live"`)
}

package browser

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// lowContrast is JavaScript that lists the texts whose contrast with what is
// behind them is below 4.5, the bar of WCAG 2 at level AA.
const lowContrast = `(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const f = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const behind = (node) => {
    for (let n = node; n; n = n.parentElement) {
      const c = rgba(getComputedStyle(n).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255, 255];
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !parent.checkVisibility() || parent.closest(".unseen, title, noscript")) continue;
    const [a, b] = [light(rgba(getComputedStyle(parent).color)), light(behind(parent))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.add(contrast.toFixed(2) + " " + walker.currentNode.textContent.trim().slice(0, 40));
  }
  return [...found].join("; ");
})()`

// requireTree reads what a screen reader is told: the landmarks, a table with
// headers on screens of every width, and a name on everything that can be used.
func requireTree(t *testing.T, b *tab, shape string) {
	t.Helper()
	roles := map[string]int{}
	tree, err := chromedp.Run(b.ctx, func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	require.NoError(t, err)
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		role := text(n.Role)
		roles[role]++
		switch role {
		case "button", "textbox", "searchbox", "combobox", "link", "image", "img", "table", "navigation":
			if text(n.Name) == "" {
				t.Errorf("%s: a %s has no name", shape, role)
			}
		}
	}
	for _, role := range []string{"banner", "main", "contentinfo", "navigation", "table", "columnheader", "rowheader", "button"} {
		require.Positive(t, roles[role], "%s: no %s in %v", shape, role, roles)
	}
	require.GreaterOrEqual(t, roles["row"], 6, "%s: %v", shape, roles)
	require.GreaterOrEqual(t, roles["cell"], 6*5, "%s: %v", shape, roles)
}

func text(v *accessibility.Value) (s string) {
	if v != nil {
		_ = json.Unmarshal(v.Value, &s)
	}
	return s
}

// Package pictures draws the pictures of the pages as SVG. "go test ./docs/pictures -update" writes
// them, and "-record" also records the session anew. A picture has its own background and colors for
// light and dark, and its text is text.
package pictures

import (
	"fmt"
	"html"
	"strings"
)

// style has the colors. A browser selects them also where the picture is an image in a page.
const style = `
:root { --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --panel: #f6f8fa;
  --run: #1a7f37; --wait: #9a6700; --bad: #cf222e; --main: #0969da; --other: #afb8c1; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --panel: #151b23;
    --run: #3fb950; --wait: #d29922; --bad: #f85149; --main: #4493f8; --other: #6e7681; } }
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); }
text.mono { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre; }
text.small { font-size: 12px; }
.soft { fill: var(--soft); }
.strong { font-weight: 600; }
.paper { fill: var(--paper); }
.panel { fill: var(--panel); stroke: var(--line); }
.line { stroke: var(--line); fill: none; }
.ink { stroke: var(--ink); fill: none; }
.run { fill: var(--run); }
.wait { fill: var(--wait); }
.bad { fill: var(--bad); }
.main { fill: var(--main); }
.other { fill: var(--other); }
.faint { opacity: 0.35; }
.dashed { stroke-dasharray: 4 4; }
.onbar { fill: var(--paper); font-weight: 600; }
`

// A drawing is a picture that is being drawn.
type drawing struct {
	width, height int
	title         string
	body          strings.Builder
}

func (d *drawing) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&d.body, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\"/>\n",
		class, x, y, width, height)
}

func (d *drawing) lineTo(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.body, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2)
}

// text writes text whose anchor is start, middle or end.
func (d *drawing) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(&d.body, "<text class=\"%s\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
		class, anchor, x, y, html.EscapeString(text))
}

// dot marks a point in time.
func (d *drawing) dot(class string, x, y float64) {
	fmt.Fprintf(&d.body, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n", class, x, y)
}

// String returns the whole file.
func (d *drawing) String() string {
	title := html.EscapeString(d.title)
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\""+
		" role=\"img\" aria-label=\"%s\">\n<title>%s</title>\n<style>%s</style>\n"+
		"<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n%s</svg>\n",
		d.width, d.height, d.width, d.height, title, title, style, d.width, d.height, d.body.String())
}

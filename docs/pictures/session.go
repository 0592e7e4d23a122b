package pictures

import "strings"

// Session draws a recorded session: a panel for each terminal. A line "# TITLE" begins one.
func Session(recorded string) string {
	d := &drawing{width: 860, title: "Two terminals run the same command; golock ls --watch shows both"}
	const left, lineHeight = 20.0, 20.0
	y := 16.0
	terminals := strings.Split("\n"+strings.TrimSpace(recorded), "\n# ")[1:]
	for _, terminal := range terminals {
		title, text, _ := strings.Cut(terminal, "\n")
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		d.text("small soft", "start", left, y+8, title)
		d.rect("panel", left, y+16, float64(d.width)-2*left, lineHeight*float64(len(lines))+16)
		for i, line := range lines {
			class := "mono"
			if strings.HasPrefix(line, "$ ") {
				class = "mono strong"
			}
			d.text(class, "start", left+14, y+16+lineHeight*float64(i+1)+2, line)
		}
		y += lineHeight*float64(len(lines)) + 52
	}
	d.height = int(y)
	return d.String()
}

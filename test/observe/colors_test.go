package observe

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
)

// legible are the least contrasts of the page's colors, as WCAG 2.2 asks: 4.5 for text, 3 for what
// is drawn.
var legible = []struct {
	colors, on string
	least      float64
}{
	{"ink soft", "paper card bad-bg warn-bg", 4.5}, {"faint", "paper card", 4.5},
	{"good", "card good-bg", 4.5}, {"bad", "card bad-bg", 4.5}, {"warn", "card warn-bg", 4.5},
	{"r0 r1 r2 r3 r4 r5 r6 r7", "card grid", 3},
}

func TestThePageCanBeReadInBothThemes(t *testing.T) {
	text, err := os.ReadFile("../../actors/observe/page/page.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(text), -1)
	if len(themes) != 2 {
		t.Fatalf("%d themes", len(themes))
	}
	for i, theme := range []string{"light", "dark"} {
		colors := make(map[string]string)
		for _, m := range regexp.MustCompile(`--([\w-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(themes[i][1], -1) {
			colors[m[1]] = m[2]
		}
		for _, l := range legible {
			for color := range strings.FieldsSeq(l.colors) {
				for ground := range strings.FieldsSeq(l.on) {
					a, b := luminance(t, colors[color]), luminance(t, colors[ground])
					if contrast := (max(a, b) + 0.05) / (min(a, b) + 0.05); contrast < l.least {
						t.Errorf("%s theme: %s on %s has a contrast of %.2f, and needs %.1f", theme, color, ground, contrast, l.least)
					}
				}
			}
		}
	}
}

// luminance is a color's relative luminance by WCAG 2.2.
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	var rgb [3]uint8
	if _, err := fmt.Sscanf(color, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
		t.Fatalf("color %q: %v", color, err)
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(rgb[i]) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

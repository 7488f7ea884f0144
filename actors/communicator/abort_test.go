package communicator

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextForTheWire(t *testing.T) {
	for _, s := range []string{"", "plain", "\xff", strings.Repeat("é", maxText),
		"x" + strings.Repeat("世", maxText), strings.Repeat("\x80", 2*maxText),
		strings.Repeat("x", maxText-1) + "\xe4\xb8"} {
		w := WireText(s)
		if !utf8.ValidString(w) || len(w) > maxText ||
			len(w) < min(len(s), maxText)-3 && !strings.Contains(w, "?") {
			t.Errorf("%d bytes (%.10q) became %d (%.10q)", len(s), s, len(w), w)
		}
	}
}

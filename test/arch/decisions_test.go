package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// statusOf finds the status of a record: up to what is said beside it.
var statusOf = regexp.MustCompile(`(?m)^Status: ([^.;:]*?)(?: of | for |[.;:])`)

// TestBothIndexesHaveEachDecision: they say of a record what it says itself.
func TestBothIndexesHaveEachDecision(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	dir := filepath.Join("..", "..", "docs", "decisions")
	index, overview := read(filepath.Join(dir, "README.md")), read(filepath.Join("..", "..", "ARCHITECTURE.md"))
	records, err := filepath.Glob(filepath.Join(dir, "[0-9][0-9][0-9]-*.md"))
	if err != nil || len(records) == 0 {
		t.Fatalf("no records: %v", err)
	}
	for _, record := range records {
		name := filepath.Base(record)
		status := statusOf.FindStringSubmatch(read(record))
		if status == nil {
			t.Errorf("%s has no status", name)
			continue
		}
		line := regexp.MustCompile(`(?m)^\| \[` + name[:3] + `\]\(` + name + `\) \| .* \| ([^|(]*)`).FindStringSubmatch(index)
		if line == nil || strings.TrimSpace(line[1]) != strings.TrimSpace(strings.Split(status[1], "(")[0]) {
			t.Errorf("%s is %q; the index in docs/decisions/README.md says %q", name, status[1], line)
		}
		if !strings.Contains(overview, "docs/decisions/"+name+")") {
			t.Errorf("%s is not in the index of ARCHITECTURE.md", name)
		}
	}
	if words := len(strings.Fields(overview)); words > 1500 {
		t.Errorf("ARCHITECTURE.md has %d words: 1,500 at most", words)
	}
}

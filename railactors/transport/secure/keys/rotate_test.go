package keys

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A step is files that are replaced one after the other. Wherever it stops, the same step is next,
// finishes what was begun, and the rotation ends with the new keys alone.
func TestARotationGoesOnWhereverAStepStops(t *testing.T) {
	steps := []Step{RotateAdd, RotateUse, RotateDrop}
	for i, stopped := range steps {
		for written, more := 0, true; more; written++ {
			t.Run(fmt.Sprintf("%s after %d files", stopped, written), func(t *testing.T) {
				a := rotating(t)
				old := a.parts(t)
				a.rotate(t, steps[:i]...)
				more = a.stop(t, stopped, written)
				left := steps[i:]
				if !more {
					left = steps[i+1:] // all of it was written
				}
				a.rotate(t, left...)
				now := a.parts(t)
				for file, text := range old {
					if bytes.Contains(now[file], bytes.TrimSpace(text)) {
						t.Errorf("%s still has the former key", file)
					}
				}
				if s, err := a.load(); err != nil || len(s.certs) != 1 || len(s.keys) != 1 || len(s.gossip) != 1 {
					t.Errorf("%+v, %v: want one of each", s, err)
				}
			})
		}
	}
}

// rotated is an authority with a node.
type rotated struct{ Authority }

func rotating(t *testing.T) rotated {
	t.Helper()
	a := rotated{Authority{Dir: t.TempDir()}}
	if err := a.Init("x"); err != nil {
		t.Fatal(err)
	}
	if err := a.Node("a"); err != nil {
		t.Fatal(err)
	}
	return a
}

// rotate makes steps. Any other one is refused.
func (a rotated) rotate(t *testing.T, steps ...Step) {
	t.Helper()
	for _, step := range steps {
		for _, other := range []Step{RotateAdd, RotateUse, RotateDrop} {
			if _, err := a.step(other); (err == nil) != (other == step) {
				t.Fatalf("before %s: step %s: %v", step, other, err)
			}
		}
		if err := a.Rotate(step); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if _, err := a.Files("a").Load(); err != nil {
			t.Fatalf("after %s: %v", step, err)
		}
	}
}

// stop writes the first files of a step, and reports whether there are more of them.
func (a rotated) stop(t *testing.T, step Step, files int) bool {
	t.Helper()
	all, err := a.step(step)
	if err == nil {
		err = a.writeAll(all[:files])
	}
	if err != nil {
		t.Fatal(err)
	}
	return files < len(all)
}

// parts are the authority's own files.
func (a rotated) parts(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, file := range []string{caFile, caKeyFile, gossipFile} {
		text, err := os.ReadFile(filepath.Join(a.Dir, file))
		if err != nil {
			t.Fatal(err)
		}
		all[file] = text
	}
	return all
}

// As on a device that is full after two files.
func TestAnAuthorityThatCannotBeWrittenLeavesNothingBehind(t *testing.T) {
	a := Authority{Dir: t.TempDir()}
	if err := a.writeNew([]content{{caKeyFile, nil}, {caFile, nil}, {"missing/" + gossipFile, nil}}); err == nil {
		t.Fatal("a file was written to a directory that is missing")
	}
	if err := a.Init("x"); err != nil {
		t.Error(err)
	}
	if _, err := a.load(); err != nil {
		t.Error(err)
	}
}

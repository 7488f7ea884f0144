package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// Lengths in lines. A file or function above the first is reported, above the second it fails.
const (
	longFile, tooLongFile = 400, 500
	longFunc, tooLongFunc = 70, 100
)

func lengths(s *source, file, function int) (bad []string) {
	if n := s.lines(); n > file {
		bad = append(bad, fmt.Sprintf("%s: %d lines", s.path, n))
	}
	if s.isTest() {
		return bad // a test that tells a long story is better in one piece
	}
	for _, d := range s.ast.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > function {
			bad = append(bad, fmt.Sprintf("%s: %s has %d lines", s.at(f.Pos()), f.Name.Name, n))
		}
	}
	return bad
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	tooLong := func(s *source) []string { return lengths(s, tooLongFile, tooLongFunc) }
	samples(t, tooLong, []sample{
		{"a/x.go", "package x" + strings.Repeat("\n", tooLongFile+1), true},
		{"a/x.go", "package x\nfunc f() {" + strings.Repeat("\n", tooLongFunc) + "}", true},
		{"a/x.go", "package x\nfunc f() {\n}", false},
	})
	everywhere(t, tooLong)
	for _, s := range all(t) {
		for _, v := range lengths(s, longFile, longFunc) {
			t.Logf("rather long: %s", v)
		}
	}
}

// nobodySleeps: a sleep that waits for something waits too long or too short; what is waited for can say when it is there.
func nobodySleeps(s *source) (bad []string) {
	s.uses("time", func(pos token.Pos, name string) {
		if name == "Sleep" {
			bad = append(bad, s.at(pos)+": time.Sleep; wait for the event itself, or use a timer that can be stopped")
		}
	})
	return bad
}

func TestNobodySleeps(t *testing.T) {
	samples(t, nobodySleeps, []sample{
		{"a/x_test.go", `package x; import "time"; func f() { time.Sleep(1) }`, true},
		{"a/x.go", `package x; import "time"; var pause = time.Sleep`, true},
		{"a/x.go", `package x; import "time"; var t = time.NewTimer(1)`, false},
	})
	everywhere(t, nobodySleeps)
}

// bubblesOfOurs: the race detector crashes in bubbles that test/bubble did not make.
func bubblesOfOurs(s *source) (bad []string) {
	s.uses("testing/synctest", func(pos token.Pos, name string) {
		if name == "Test" && s.dir() != "test/bubble" {
			bad = append(bad, s.at(pos)+": synctest.Test; use test/bubble")
		}
	})
	return bad
}

func TestBubblesAreOurs(t *testing.T) {
	samples(t, bubblesOfOurs, []sample{
		{"a/x_test.go", `package x; import "testing/synctest"; var run = synctest.Test`, true},
		{"a/x_test.go", `package x; import "testing/synctest"; func f() { synctest.Wait() }`, false},
		{"test/bubble/x.go", `package x; import "testing/synctest"; var run = synctest.Test`, false},
	})
	everywhere(t, bubblesOfOurs)
}

// unfinished finds the marks of work that was left for later.
func unfinished(s *source) (bad []string) {
	for _, g := range s.ast.Comments {
		for _, c := range g.List {
			for _, mark := range []string{"TODO", "FIXME", "XXX"} {
				if strings.Contains(c.Text, mark) {
					bad = append(bad, fmt.Sprintf("%s: %s in a comment; do it, or open an issue", s.at(c.Pos()), mark))
				}
			}
		}
	}
	return bad
}

func TestNothingIsLeftUnfinished(t *testing.T) {
	samples(t, unfinished, []sample{
		{"a/x.go", "package x // TODO: later", true},
		{"a/x.go", "package x // done", false},
	})
	everywhere(t, unfinished)
}

// obvious are methods whose meaning their interface gives.
var obvious = map[string]bool{"Error": true, "Is": true, "Unwrap": true, "String": true,
	"Receive": true, "IgnoreDeadLetterLogging": true}

// documented finds exported names without a comment. In a group, the group's comment or one at the line will do.
func documented(s *source) (bad []string) {
	if s.isTest() || s.ast.Name.Name == "main" {
		return nil
	}
	missing := func(id *ast.Ident, docs ...*ast.CommentGroup) {
		if !id.IsExported() {
			return
		}
		for _, d := range docs {
			if d.Text() != "" {
				return
			}
		}
		bad = append(bad, fmt.Sprintf("%s: %s has no doc comment", s.at(id.Pos()), id.Name))
	}
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiverIsExported(d.Recv) && !obvious[d.Name.Name] {
				missing(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					missing(spec.Name, d.Doc, spec.Doc, spec.Comment)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						missing(id, d.Doc, spec.Doc, spec.Comment)
					}
				}
			}
		}
	}
	return bad
}

func receiverIsExported(recv *ast.FieldList) bool {
	t := recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	samples(t, documented, []sample{
		{"a/x.go", "package x\nfunc F() {}", true},
		{"a/x.go", "package x\n// F does it.\nfunc F() {}", false},
		{"a/x.go", "package x\ntype t[A any] struct{}\nfunc (*t[A]) F() {}", false},
		{"a/x.go", "package x\n// T is.\ntype T struct{}\nfunc (T) F() {}", true},
		{"a/x.go", "package x\n// T is.\ntype T struct{}\nfunc (T) String() string { return \"\" }", false},
		{"a/x.go", "package x\n// Sizes.\nconst (\nA = 1\nB = 2\n)", false},
		{"a/x.go", "package x\nvar V int", true},
	})
	everywhere(t, documented)
}

func TestPackagesAreDocumented(t *testing.T) {
	type state struct{ code, doc bool }
	packages := map[string]*state{}
	for _, s := range all(t) {
		p := packages[s.dir()]
		if p == nil {
			p = &state{}
			packages[s.dir()] = p
		}
		p.code = p.code || !s.isTest()
		p.doc = p.doc || s.ast.Doc.Text() != ""
	}
	for dir, p := range packages {
		if p.code && !p.doc {
			t.Errorf("package %q has no doc comment: what does it own, what not, where does one read on?", dir)
		}
	}
}

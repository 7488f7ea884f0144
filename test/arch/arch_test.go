// Package arch holds the project's rules as tests: who may import whom, what a core must
// not touch, and habits that no linter knows.
//
// Each rule is a function from one source file to its violations. It is run on every file of
// the module, and on small samples that break it.
package arch

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// module is the import path of the root package.
const module = "github.com/polyrail/polyrail"

// source is one Go file.
type source struct {
	path string // from the module's root, with slashes
	fset *token.FileSet
	ast  *ast.File
}

// dir is the package's directory; "." is the root.
func (s *source) dir() string { return path.Dir(s.path) }

func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// pure reports whether the file belongs to a core.
func (s *source) pure() bool { return under(s.dir(), "collective") && !s.isTest() }

// lines is the file's length.
func (s *source) lines() int { return s.fset.File(s.ast.Pos()).LineCount() }

// at names a place in the file, for messages.
func (s *source) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(pos).Line)
}

// imports calls f for each import path.
func (s *source) imports(f func(pos token.Pos, importPath string)) {
	for _, spec := range s.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser would have failed before
		}
		f(spec.Pos(), p)
	}
}

// uses calls f for each pkg.Name that names something in the package importPath.
func (s *source) uses(importPath string, f func(pos token.Pos, name string)) {
	local := ""
	for _, spec := range s.ast.Imports {
		if spec.Path.Value == strconv.Quote(importPath) {
			local = path.Base(importPath)
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	if local == "" {
		return
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
				f(sel.Pos(), sel.Sel.Name)
			}
		}
		return true
	})
}

// under reports whether the slash-separated path p is dir or below it.
func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// rule returns the violations in one file, each with its place.
type rule func(*source) []string

// parse reads one file's text.
func parse(name string, text any) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{path: name, fset: fset, ast: f}, nil
}

// moduleRoot is the directory of go.mod, above this package's.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil && !exists(filepath.Join(dir, "go.mod")) {
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above this package")
		}
		dir = up
	}
	return dir, err
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

// sources are all Go files of the module, generated ones excepted.
var sources = sync.OnceValues(func() ([]*source, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	var all []*source
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			foreign := exists(filepath.Join(name, "go.mod")) || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"
			if foreign && name != root {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(strings.TrimPrefix(name, root+string(filepath.Separator))), text)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(s.ast) {
			all = append(all, s)
		}
		return nil
	})
	return all, err
})

// all returns the module's files.
func all(t *testing.T) []*source {
	t.Helper()
	files, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files found", len(files))
	}
	return files
}

// everywhere runs a rule on the whole module.
func everywhere(t *testing.T, r rule) {
	t.Helper()
	for _, s := range all(t) {
		for _, v := range r(s) {
			t.Error(v)
		}
	}
}

// sample is a small file and whether it breaks a rule.
type sample struct {
	path string
	text string
	bad  bool
}

// samples runs a rule on files that it must, or must not, object to.
func samples(t *testing.T, r rule, texts []sample) {
	t.Helper()
	for _, x := range texts {
		s, err := parse(x.path, x.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r(s); (len(got) > 0) != x.bad {
			t.Errorf("%s, %q: violations %q, want some: %v", x.path, x.text, got, x.bad)
		}
	}
}

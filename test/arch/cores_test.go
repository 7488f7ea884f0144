package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"testing"
)

// impure are the packages of the standard library that a core must not import: they
// bring in input, output, locks, or an input that nobody passed in.
var impure = []string{"net", "os", "sync", "syscall", "io/ioutil", "log", "context", "math/rand", "crypto/rand", "hash/maphash", "runtime"}

// clocks are the functions of package time that read or wait for the clock; its types are welcome.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"Tick": true, "NewTimer": true, "NewTicker": true,
}

func coresArePure(s *source) (bad []string) {
	if !s.pure() {
		return nil
	}
	say := func(pos token.Pos, what string) {
		bad = append(bad, fmt.Sprintf("%s: a core uses %s; it must get what it needs as an argument", s.at(pos), what))
	}
	s.imports(func(pos token.Pos, p string) {
		for _, i := range impure {
			if under(p, i) {
				say(pos, fmt.Sprintf("package %q", p))
			}
		}
	})
	s.uses("time", func(pos token.Pos, name string) {
		if clocks[name] {
			say(pos, "time."+name)
		}
	})
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			say(n.Pos(), "a goroutine")
		case *ast.ChanType:
			say(n.Pos(), "a channel")
		}
		return true
	})
	return bad
}

func TestCoresArePure(t *testing.T) {
	samples(t, coresArePure, []sample{
		{"collective/task/x.go", `package x; import _ "net/netip"`, true},
		{"collective/task/x.go", `package x; import _ "os"`, true},
		{"collective/task/x.go", `package x; import _ "sync/atomic"`, true},
		{"collective/task/x.go", `package x; import _ "math/rand/v2"`, true},
		{"collective/task/x.go", `package x; import "time"; var _ = time.Now()`, true},
		{"collective/task/x.go", `package x; import clock "time"; var _ = clock.Since`, true},
		{"collective/task/x.go", `package x; import "time"; var _ = 3 * time.Second; var _ time.Time`, false},
		{"collective/task/x.go", `package x; func f() { go f() }`, true},
		{"collective/task/x.go", `package x; var c chan int`, true},
		{"collective/task/x_test.go", `package x; import _ "os"`, false},
		{"collective/task/x.go", `package x; import _ "math/bits"; import _ "slices"`, false},
		{"railactors/x.go", `package x; import _ "os"`, false},
	})
	everywhere(t, coresArePure)
}

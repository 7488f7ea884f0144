package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Var defines a flag whose value is checked by parse, so that a wrong one is reported
// with the flag, the variable or the key that holds it. kind is what --help calls the value.
func Var[T any](fs *pflag.FlagSet, p *T, name, kind string, parse func(string) (T, error), format func(T) string, usage string) {
	fs.Var(&single[T]{p: p, kind: kind, parse: parse, format: format}, name, usage)
}

// List defines a flag that holds several values, separated by any of the characters in
// separators; given again, it adds to them. The values it starts with are replaced by the first one set.
func List[T any](fs *pflag.FlagSet, p *[]T, name, kind, separators string, parse func(string) (T, error), format func(T) string, usage string) {
	fs.Var(&list[T]{p: p, kind: kind, separators: separators, parse: parse, format: format}, name, usage)
}

// SizeVar defines a flag that holds a number of bytes.
func SizeVar(fs *pflag.FlagSet, p *int, name, usage string) {
	Var(fs, p, name, "SIZE", ParseSize, FormatSize, usage)
}

// SizesVar defines a flag that holds a list of sizes, separated by commas.
func SizesVar(fs *pflag.FlagSet, p *[]int, name, usage string) {
	List(fs, p, name, "SIZE,...", ",", ParseSize, FormatSize, usage)
}

type single[T any] struct {
	p      *T
	kind   string
	parse  func(string) (T, error)
	format func(T) string
}

func (v *single[T]) Type() string   { return v.kind }
func (v *single[T]) String() string { return v.format(*v.p) }

func (v *single[T]) Set(s string) error {
	x, err := v.parse(s)
	if err == nil {
		*v.p = x
	}
	return err
}

type list[T any] struct {
	p          *[]T
	kind       string
	separators string
	parse      func(string) (T, error)
	format     func(T) string
	set        bool // *p holds what was set, no longer the default
}

func (v *list[T]) Type() string { return v.kind }

func (v *list[T]) takesSeveral() {}

func (v *list[T]) String() string {
	items := make([]string, len(*v.p))
	for i, x := range *v.p {
		items[i] = v.format(x)
	}
	return strings.Join(items, v.separators[:1])
}

func (v *list[T]) Set(s string) error {
	var items []T
	for _, item := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(v.separators, r) }) {
		x, err := v.parse(strings.TrimSpace(item))
		if err != nil {
			return err
		}
		items = append(items, x)
	}
	if v.set {
		items = append(*v.p, items...)
	}
	*v.p, v.set = items, true
	return nil
}

// ParseSwitch reads on or off.
func ParseSwitch(s string) (bool, error) {
	switch s {
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither on nor off", s)
}

// FormatSwitch is the inverse of ParseSwitch.
func FormatSwitch(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// AsIs formats a text.
func AsIs(s string) string { return s }

// ParseAsIs is the inverse of AsIs.
func ParseAsIs(s string) (string, error) { return s, nil }

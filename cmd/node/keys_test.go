package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/polyrail/polyrail/railactors/transport/secure/keys"
)

func TestKeysAreMadeAndRotated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"init", "--cluster", "prod"}, "authority of cluster prod"},
		{[]string{"node", "a", "b"}, "polyrail://prod/b: copy b.pem, b-key.pem, ca.pem and gossip.key to its host"},
		{[]string{"rotate", "add"}, "rotate --dir " + dir + " use"},
		{[]string{"rotate", "use"}, "rotate --dir " + dir + " drop"},
		{[]string{"rotate", "drop"}, "is rotated"},
	} {
		code, out, errs := node(t, append([]string{"keys", c.args[0], "--dir", dir}, c.args[1:]...)...)
		if code != exitOK || errs != "" || !strings.Contains(out, c.want) {
			t.Fatalf("%v: exit code %d, %q, %q", c.args, code, out, errs)
		}
	}
	a := keys.Authority{Dir: dir}
	if c, err := a.Files("b").Load(); err != nil || c.String() != "polyrail://prod/b" {
		t.Errorf("%v, %v", c, err)
	}
}

func TestWrongUseOfKeysIsExplained(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if code, _, errs := node(t, "keys", "init", "--dir", dir, "--cluster", "prod"); code != exitOK {
		t.Fatal(errs)
	}
	for want, c := range map[string]struct {
		code int
		args []string
	}{
		"--dir must name":         {exitUsage, []string{"init", "--cluster", "x"}},
		"--cluster must name":     {exitUsage, []string{"init", "--dir", dir}},
		"has an authority":        {exitFailure, []string{"init", "--dir", dir, "--cluster", "prod"}},
		"name the nodes":          {exitUsage, []string{"node", "--dir", dir}},
		"--host-name is of one":   {exitUsage, []string{"node", "--dir", dir, "--host-name", "x", "a", "b"}},
		"neither a name nor":      {exitFailure, []string{"node", "--dir", dir, "--host-name", "x y", "a"}},
		"no file can be named":    {exitUsage, []string{"node", "--dir", dir, "a", "ca"}},
		"say which step":          {exitUsage, []string{"rotate", "--dir", dir, "all"}},
		`is at "add"`:             {exitFailure, []string{"rotate", "--dir", dir, "drop"}},
		"no such file":            {exitFailure, []string{"node", "--dir", dir + "x", "a"}},
		"takes no argument \"x\"": {exitUsage, []string{"init", "x"}},
	} {
		code, _, errs := node(t, append([]string{"keys"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %q, want %s", c.args, code, errs, want)
		}
	}
}

package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionSaysWhatACommandWasBuiltOf(t *testing.T) {
	t.Setenv("POLYRAIL_VERSION", "7") // of a deployment: no twin of --version
	for _, args := range [][]string{{"version"}, {"--version"}} {
		code, out, errs := node(t, args...)
		if code != exitOK || !strings.HasPrefix(out, "node ") || !strings.Contains(out, runtime.Version()) || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errs)
		}
	}
	if code, out, errs := node(t); code != exitOK || !strings.Contains(out, "--version") {
		t.Errorf("node alone: exit code %d, %q", code, errs)
	}
}

func TestAVersionNamesCommitAndChanges(t *testing.T) {
	platform := ", go1.26.1, " + runtime.GOOS + "/" + runtime.GOARCH
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "3c1db8a"}, {Key: "vcs.modified", Value: modified}}
	}
	for want, info := range map[string]*debug.BuildInfo{
		"node v1.2.3":                            {Main: debug.Module{Version: "v1.2.3"}},
		"node (devel), commit 3c1db8a":           {Main: debug.Module{Version: "(devel)"}, Settings: vcs("false")},
		"node v0.1.0, commit 3c1db8a (modified)": {Main: debug.Module{Version: "v0.1.0"}, Settings: vcs("true")},
		"node (unknown version)":                 {},
	} {
		info.GoVersion = "go1.26.1"
		if got := built(info); got != want+platform {
			t.Errorf("%q, want %q", got, want+platform)
		}
	}
}

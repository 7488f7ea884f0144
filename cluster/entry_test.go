package cluster

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/polyrail/polyrail/collective/view"
)

func TestEntriesReadBackAsWritten(t *testing.T) {
	for _, e := range []Entry{
		{"polyrail", "a", 1, "10.0.0.1:7946"},
		{strings.Repeat("\x01", memberlist.LabelMaxSize), strings.Repeat("\"", view.MaxNode),
			math.MaxUint64, "[fd00::1%eth0]:65535"},
	} {
		b := e.Encode()
		got, err := DecodeEntry(b)
		if err != nil || got != e || len(b) > MaxEntryBytes {
			t.Errorf("%q (%d bytes) reads back as %+v, error %v", b, len(b), got, err)
		}
	}
}

func TestWhatNoNodeCanHaveWrittenIsRefused(t *testing.T) {
	good := string(Entry{"polyrail", "a", 1, "10.0.0.1:7946"}.Encode())
	for name, text := range map[string]string{
		"nothing":          "",
		"no JSON":          "x",
		"another type":     `[1]`,
		"half":             good[:len(good)/2],
		"two":              good + good,
		"too long":         good[:len(good)-1] + `,"x":"` + strings.Repeat("y", MaxEntryBytes) + `"}`,
		"another format":   strings.Replace(good, `"format":1`, `"format":2`, 1),
		"no cluster":       strings.Replace(good, "polyrail", "", 1),
		"long cluster":     strings.Replace(good, "polyrail", strings.Repeat("x", 256), 1),
		"node with blanks": strings.Replace(good, `"a"`, `"a b"`, 1),
		"node with #":      strings.Replace(good, `"a"`, `"a#1"`, 1),
		"node with /":      strings.Replace(good, `"a"`, `"../a"`, 1),
		"incarnation 0":    strings.Replace(good, `"1"`, `"0"`, 1),
		"host name":        strings.Replace(good, "10.0.0.1", "example.org", 1),
		"port 0":           strings.Replace(good, ":7946", ":0", 1),
		"any address":      strings.Replace(good, "10.0.0.1", "0.0.0.0", 1),
		"multicast":        strings.Replace(good, "10.0.0.1", "224.0.0.1", 1),
	} {
		if text == good {
			t.Fatalf("%s: the sample is the good one", name)
		}
		if e, err := DecodeEntry([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %+v", name, e)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(Entry{"polyrail", "a", 1, "10.0.0.1:7946"}.Encode())
	f.Add([]byte(`{"format":1,"incarnation":"7","incarnation":"8","x":{"y":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			if e != (Entry{}) {
				t.Errorf("an error, and %+v", e)
			}
			return
		}
		text := e.Encode()
		if again, err := DecodeEntry(text); err != nil || again != e || !bytes.Equal(again.Encode(), text) {
			t.Errorf("%q reads as %+v, and that as %+v, error %v", b, e, again, err)
		}
		if strings.ContainsAny(e.Process(), "/\x00") {
			t.Errorf("process name %q", e.Process())
		}
	})
}

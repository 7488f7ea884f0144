package plots

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// note is at so many ms, after that many operations, with what two rails have sent.
func note(ms, bytes, operations int, a, b uint64) Note {
	return Note{At: time.Duration(ms) * time.Millisecond, Bytes: bytes, Operations: operations, Table: 3,
		Rails: []Counters{{Sent: a, Received: 2 * a}, {Sent: b, Received: 2 * b}}}
}

func recording() *Recording {
	r := &Recording{Rails: []string{"fast", "slow"}}
	r.Tick(note(0, 0, 0, 0, 0))
	r.Begin(note(10, 1024, 0, 100, 0))
	r.Operation(note(20, 1024, 1, 175, 25))
	r.Operation(note(30, 1024, 1, 176, 25)) // a barrier, no operation
	r.Operation(note(40, 1024, 2, 275, 25))
	r.End(note(40, 1024, 2, 275, 25))
	r.Tick(note(100, 1024, 2, 2_000_000, 500_000))
	return r
}

func TestSharesAreThoseOfEachOperation(t *testing.T) {
	var out bytes.Buffer
	r := recording()
	if err := r.writeShares(&out, r.Shares()); err != nil {
		t.Fatal(err)
	}
	want := `seconds,bytes,operation,table,rail,share
0.020000,1024,1,3,fast,0.7500
0.020000,1024,1,3,slow,0.2500
0.040000,1024,2,3,fast,1.0000
0.040000,1024,2,3,slow,0.0000
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestRatesAreBytesOverTheTimeBetweenTwoTicks(t *testing.T) {
	var out bytes.Buffer
	r := recording()
	if err := r.writeRates(&out, r.Rates()); err != nil {
		t.Fatal(err)
	}
	want := `seconds,bytes,rail,sent_bytes,received_bytes,sent_mb_s,received_mb_s
0.100000,1024,fast,2000000,4000000,20.000,40.000
0.100000,1024,slow,500000,1000000,5.000,10.000
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestALongRecordingIsThinnedAndLosesNoBytes(t *testing.T) {
	r := &Recording{Rails: []string{"a", "b"}}
	const operations = 5*maxNotes + 7
	r.Begin(note(0, 8, 0, 0, 0))
	for i := 1; i < operations; i++ {
		r.Operation(note(i, 8, i, uint64(3*i), uint64(i)))
	}
	r.End(note(operations, 8, operations, 3*operations, operations))
	s := r.sizes[0]
	if len(s.notes) > maxNotes || len(s.notes) < maxNotes/4 {
		t.Errorf("%d notes are kept of %d", len(s.notes), operations)
	}
	if last := s.notes[len(s.notes)-1]; s.notes[0].Operations != 0 || last.Operations != operations {
		t.Errorf("they go from operation %d to %d", s.notes[0].Operations, last.Operations)
	}
	for i, share := range r.Shares() {
		if share.Parts[0] != 0.75 || i > 0 && share.Operations <= r.Shares()[i-1].Operations {
			t.Fatalf("share %d: %+v", i, share)
		}
		if i > 3 {
			break
		}
	}
}

func TestPicturesAreDrawn(t *testing.T) {
	for name, r := range map[string]*Recording{"some": recording(), "nothing": {Rails: []string{"a"}}} {
		dir := t.TempDir()
		if err := r.Write(dir, func(n int) string { return fmt.Sprint(n) }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, file := range []string{SharesPicture, RatesPicture} {
			f, err := os.Open(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 600 {
				t.Errorf("%s: %s: %v", name, file, err)
			}
		}
	}
	if err := recording().Write(filepath.Join(t.TempDir(), "missing"), func(int) string { return "" }); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a directory that doesn't exist: %v", err)
	}
}

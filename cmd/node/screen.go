package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/polyrail/polyrail"
	"github.com/polyrail/polyrail/cmd/internal/settings"
)

// window is what a terminal has room for; 0: any number.
type window struct{ lines, columns int }

// fewestNodes are listed of the others, however small the window is.
const fewestNodes = 3

// screen writes a cluster for a terminal, with rates since another frame; sent are those of other
// nodes. What does not fit into the window is left out: of the other nodes those that are well, the
// ends of long lines, and in a small window the last lines.
func screen(w io.Writer, now, before *polyrail.ClusterStatus, sent rates, fit window) error {
	self := &now.Self
	seconds := self.Time.Sub(before.Self.Time).Seconds()
	state := "ready"
	if len(self.Obstacles) > 0 {
		state = "not ready: " + printable(strings.Join(self.Obstacles, "; "))
	}
	var above, below strings.Builder
	fmt.Fprintf(&above, "node %s of %s, up %v, %s; memory %s of %s\n\n", printable(self.Node), printable(self.Cluster),
		self.Time.Sub(self.Started).Round(time.Second), state,
		settings.FormatSize(int(self.Memory.InUse)), settings.FormatSize(int(self.Memory.Limit)))
	err := errors.Join(inColumns(&above, func(out io.Writer) { railLines(out, now, before, seconds) }),
		inColumns(&below, func(out io.Writer) { operationLines(out, now, before, seconds) }),
		inColumns(&below, func(out io.Writer) { communicatorLines(out, self) }),
		eventLines(&below, now))
	others := otherNodes(now, sent)
	listed := len(others)
	if fit.lines > 0 {
		const besides = 4 // a title, a line for the rest, an empty one, the cursor's
		room := fit.lines - strings.Count(above.String()+below.String(), "\n") - besides
		listed = min(listed, max(room, fewestNodes))
	}
	err = errors.Join(err, inColumns(&above, func(out io.Writer) { nodeLines(out, others, listed) }))
	written := 0
	for line := range strings.Lines(above.String() + below.String()) {
		if written++; fit.lines > 0 && written >= fit.lines { // the last one is the cursor's
			break
		}
		_, failed := io.WriteString(w, shortened(line, fit.columns))
		err = errors.Join(err, failed)
	}
	return err
}

// shortened cuts a line off, where it has more than so many characters.
func shortened(line string, columns int) string {
	if text := []rune(strings.TrimSuffix(line, "\n")); columns > 0 && len(text) > columns {
		return string(text[:columns-1]) + "…\n"
	}
	return line
}

// perSecond writes the rate of a counter of bytes.
func perSecond(now, before uint64, seconds float64) string {
	if now < before || seconds <= 0 {
		return "-"
	}
	return megabytes(float64(now-before) / seconds)
}

// megabytes writes a rate in bytes per second.
func megabytes(rate float64) string { return number(rate/1e6) + " MB/s" }

// number writes a rate to four digits, or to the integer where it has more.
func number(rate float64) string {
	if rate >= 1000 {
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.4g", rate)
}

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "DOWN"
}

func railLines(out io.Writer, now, before *polyrail.ClusterStatus, seconds float64) {
	fmt.Fprintln(out, "RAIL\tSTATE\tSENT\tRECEIVED\tPEERS\tWHILE BUSY\tIN FLIGHT\tSENT AGAIN\tDEVICE")
	for i := range now.Self.Rails {
		r := &now.Self.Rails[i]
		var old polyrail.RailStatus
		if i < len(before.Self.Rails) {
			old = before.Self.Rails[i]
		}
		up, all, flying, rate, rated := 0, 0, 0, 0.0, 0
		for _, p := range now.Self.Pairs {
			if p.Rail != r.Name {
				continue
			}
			if all++; p.Up {
				up++
			}
			if flying += p.InFlight; p.Rate > 0 {
				rate, rated = rate+p.Rate, rated+1
			}
		}
		busy := "-"
		if rated > 0 {
			busy = megabytes(rate / float64(rated))
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%d of %d\t%s\t%s\t%d\t%s\n", printable(r.Name), upDown(r.Up),
			perSecond(r.BytesSent, old.BytesSent, seconds), perSecond(r.BytesReceived, old.BytesReceived, seconds),
			up, all, busy, settings.FormatSize(flying), r.Resent, printable(r.Chosen))
	}
	fmt.Fprintln(out)
}

// otherNode is a line of another node.
type otherNode struct {
	well bool
	text string
}

// rates are what rails of other nodes send. Nodes answer at times of their own, so each has a time.
type rates map[string]counted

type counted struct {
	bytes  uint64
	at     time.Time // of the answer
	second float64   // bytes per second between the last two answers; -1: there was one
}

func (r rates) key(node, rail string) string { return node + "\x00" + rail }

// see takes what a frame says, and forgets nodes that are gone.
func (r rates) see(now *polyrail.ClusterStatus) {
	gone := maps.Clone(r)
	for _, n := range now.Others {
		if n.Silent < 0 {
			continue
		}
		at := now.Self.Time.Add(-time.Duration(n.Silent * float64(time.Second)))
		for _, rail := range n.Rails {
			key := r.key(n.Node, rail.Name)
			delete(gone, key)
			old, known := r[key]
			c := counted{rail.BytesSent, at, -1}
			if known && at.Sub(old.at) < 10*time.Millisecond {
				continue // the same answer
			}
			if known && c.bytes >= old.bytes {
				c.second = float64(c.bytes-old.bytes) / at.Sub(old.at).Seconds()
			}
			r[key] = c
		}
	}
	for key := range gone {
		delete(r, key)
	}
}

// complete reports whether each other node has answered twice.
func (r rates) complete(now *polyrail.ClusterStatus) bool {
	for _, n := range now.Others {
		for _, rail := range n.Rails {
			if r[r.key(n.Node, rail.Name)].second < 0 {
				return false
			}
		}
		if n.Silent < 0 {
			return false
		}
	}
	return true
}

// otherNodes are the lines of all others: those that are not well come first.
func otherNodes(now *polyrail.ClusterStatus, sent rates) (all []otherNode) {
	for _, n := range now.Others {
		line := otherNode{well: true}
		state := "well"
		trouble := func(what string) { line.well, state = false, what }
		switch {
		case n.Silent < 0:
			trouble("no answer yet")
		case n.Silent > now.SilentAfter:
			trouble(fmt.Sprintf("SILENT for %.0f s", n.Silent))
		case len(n.Obstacles) > 0:
			trouble(printable(n.Obstacles[0]))
		}
		for _, c := range n.Communicators {
			if c.Err != "" {
				trouble(printable(c.Name) + " is BROKEN")
			}
		}
		if line.well && n.Groups > 0 {
			state = fmt.Sprintf("well, trees: %d", n.Groups)
		}
		var rails, speeds []string
		for _, r := range n.Rails {
			line.well = line.well && r.Up
			rails = append(rails, printable(r.Name)+" "+upDown(r.Up))
			speed := "-"
			if c, ok := sent[sent.key(n.Node, r.Name)]; ok && c.second >= 0 {
				speed = megabytes(c.second)
			}
			speeds = append(speeds, speed)
		}
		line.text = fmt.Sprintf("%s\t%s\t%s\t%s\n", printable(n.Node), state, strings.Join(rails, ", "), strings.Join(speeds, ", "))
		all = append(all, line)
	}
	slices.SortStableFunc(all, func(a, b otherNode) int {
		switch {
		case a.well == b.well:
			return 0
		case b.well:
			return -1
		}
		return 1
	})
	return all
}

// nodeLines writes the first lines of other nodes, and says what the rest is.
func nodeLines(out io.Writer, others []otherNode, listed int) {
	if len(others) == 0 {
		return
	}
	fmt.Fprintln(out, "OTHER NODE\tSTATE\tRAILS\tSENT")
	for _, n := range others[:listed] {
		fmt.Fprint(out, n.text)
	}
	if rest := others[listed:]; len(rest) > 0 {
		ill := 0
		for _, n := range rest {
			if !n.well {
				ill++
			}
		}
		fmt.Fprintf(out, "%d more, %d of them not well\n", len(rest), ill)
	}
	fmt.Fprintln(out)
}

func operationLines(out io.Writer, now, before *polyrail.ClusterStatus, seconds float64) {
	type count struct{ count, bytes uint64 }
	old := make(map[string]count)
	key := func(name, kind string, size int) string { return fmt.Sprintf("%s\x00%s\x00%d", name, kind, size) }
	for _, c := range before.Self.Counts {
		for _, k := range c.Counts {
			old[key(c.Name, k.Kind, k.MaxBytes)] = count{k.Took.Count, k.Bytes}
		}
	}
	lines := 0
	for _, c := range now.Self.Counts {
		for _, k := range c.Counts {
			if lines++; lines == 1 {
				fmt.Fprintln(out, "COMMUNICATOR\tOPERATION\tUP TO\tPER SECOND\tBYTES\tMEAN OF ALL\tFAILED")
			}
			was := old[key(c.Name, k.Kind, k.MaxBytes)]
			size := "any size"
			if k.MaxBytes >= 0 {
				size = settings.FormatSize(k.MaxBytes)
			}
			mean := time.Duration(0)
			if k.Took.Count > 0 {
				mean = k.Took.Sum / time.Duration(k.Took.Count)
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%v\t%d\n", printable(c.Name), k.Kind, size,
				number(float64(k.Took.Count-was.count)/seconds), perSecond(k.Bytes, was.bytes, seconds), rounded(mean), k.Failed)
		}
	}
	if lines > 0 {
		fmt.Fprintln(out)
	}
}

func communicatorLines(out io.Writer, self *polyrail.NodeStatus) {
	if len(self.Communicators) == 0 {
		return
	}
	fmt.Fprintln(out, "COMMUNICATOR\tRANK\tOF\tOPERATIONS\tIN FLIGHT\tTABLE\tLARGEST SHARES\tSTATE")
	for i := range self.Communicators {
		c := &self.Communicators[i]
		state, shares := "well", "-"
		switch {
		case c.Err != "":
			state = "BROKEN: " + printable(c.Err)
		case c.Degraded:
			state = "a rail is down"
		}
		for _, t := range c.Trees {
			state += fmt.Sprintf(", tree on %s at %s", printable(t.Rail), printable(t.Node))
		}
		for k := range c.Classes {
			if c.Classes[k].Family == "allreduce" {
				shares = percents(c.Classes[k].Shares)
			}
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", printable(c.Name), c.Rank, c.Size, c.Seq, c.InFlight, c.Version, shares, state)
	}
	fmt.Fprintln(out)
}

// shownEvents are the last ones that are listed.
const shownEvents = 8

func eventLines(w io.Writer, now *polyrail.ClusterStatus) error {
	type line struct {
		at   time.Time
		text string
	}
	var all []line
	add := func(node string, events []polyrail.EventRecord) {
		for _, e := range events {
			words := []string{e.Kind, e.Communicator, e.Rail}
			if e.Node != "" {
				words = append(words, "to "+e.Node)
			}
			if e.Err != "" {
				words = append(words, "("+e.Err+")")
			}
			text := strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
			all = append(all, line{e.Time, fmt.Sprintf("%s  %s: %s", e.Time.Local().Format(time.TimeOnly), printable(node), printable(text))})
		}
	}
	add(now.Self.Node, now.Self.Events)
	for _, n := range now.Others {
		add(n.Node, n.Events)
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	for _, l := range all[max(0, len(all)-shownEvents):] {
		if _, err := fmt.Fprintln(w, l.text); err != nil {
			return err
		}
	}
	return nil
}

// printable makes texts of nodes fit for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

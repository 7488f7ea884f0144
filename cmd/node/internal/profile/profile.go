// Package profile says where a process's processor time goes, in the terms of this project: system
// calls, polling, waking, reduction, actors. It takes a CPU profile of its own process and sorts
// the samples by their stacks.
//
// It owns the sorting. What is profiled is the caller's to choose; the form of the answer is
// package osu's.
package profile

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"time"

	pb "github.com/google/pprof/profile"

	"github.com/polyrail/polyrail/cmd/node/internal/osu"
)

// Capture is a profile being taken. A process can take one at a time.
type Capture struct {
	data  bytes.Buffer
	start time.Time
}

// Start begins to profile this process, a hundred samples per second of processor time.
func Start() (*Capture, error) {
	c := &Capture{start: time.Now()}
	if err := pprof.StartCPUProfile(&c.data); err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	return c, nil
}

// Stop ends the profile and sums it up. The file, if there is one, keeps the profile itself.
func (c *Capture) Stop(keep *File) (*osu.Profile, error) {
	wall := time.Since(c.start)
	pprof.StopCPUProfile()
	p, err := pb.Parse(&c.data)
	if err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	keep.add(p)
	return sum(p, wall), nil
}

// sum sorts the samples. The values of a CPU profile's sample are its count and its nanoseconds.
func sum(p *pb.Profile, wall time.Duration) *osu.Profile {
	var all int64
	spent := make([]int64, len(parts))
	r := &osu.Profile{WallSeconds: wall.Seconds()}
	for _, s := range p.Sample {
		r.Samples += int(s.Value[0])
		all += s.Value[1]
		spent[partOf(stack(s))] += s.Value[1]
	}
	r.CPUSeconds = time.Duration(all).Seconds()
	for i, part := range parts {
		if spent[i] > 0 {
			r.Parts = append(r.Parts, osu.Part{Name: part.name, Meaning: part.meaning, Share: float64(spent[i]) / float64(all)})
		}
	}
	return r
}

// stack is a sample's functions, innermost first, inlined ones included.
func stack(s *pb.Sample) []string {
	var names []string
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

package shm_test

import (
	"testing"

	"github.com/polyrail/polyrail/railactors/transport"
	"github.com/polyrail/polyrail/railactors/transport/shm"
	"github.com/polyrail/polyrail/railactors/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for name, o := range map[string]shm.Options{
		"AsItComes":   {},
		"SmallRings":  {RingBytes: shm.MinRing},
		"LittleSpace": {MaxBytes: 2 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t *testing.T) (a, b transport.Device) { return open(t, o), open(t, o) })
		})
	}
}

func open(t *testing.T, o shm.Options) transport.Device {
	t.Helper()
	d, err := shm.New(o).Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

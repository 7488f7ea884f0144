package polyrail_test

import (
	"slices"
	"testing"

	"github.com/polyrail/polyrail"
)

func TestTheRailsOfAutoAreSetUpLikeIt(t *testing.T) {
	auto := polyrail.Rail{Name: "all", Protocol: "sharp", Device: "auto", Weight: 7, CPUs: []int{0}}
	c, err := polyrail.Config{Rails: []polyrail.Rail{auto}}.Expanded()
	if err != nil {
		t.Skip("this host has no interface but loopback: ", err)
	}
	for _, r := range c.Rails {
		if r.Name == "" || r.Name != r.Device || r.Device == "auto" || r.Protocol != auto.Protocol ||
			r.Weight != auto.Weight || !slices.Equal(r.CPUs, auto.CPUs) {
			t.Errorf("auto has become %+v", r)
		}
	}
}

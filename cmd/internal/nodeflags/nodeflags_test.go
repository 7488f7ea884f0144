package nodeflags

import (
	"testing"

	"github.com/polyrail/polyrail"
)

// TestTheHelpNamesAlgorithmsThatSizesCanHave: those of other operations alone are refused.
func TestTheHelpNamesAlgorithmsThatSizesCanHave(t *testing.T) {
	for _, name := range algorithmNames() {
		cfg := polyrail.DefaultConfig()
		cfg.Rails = []polyrail.Rail{{Name: "a", Protocol: "tcp", Device: "127.0.0.1"}}
		r, err := parseAlgorithmRange("64KiB=" + name)
		cfg.Algorithms = []polyrail.AlgorithmRange{r}
		if err != nil || cfg.Validate() != nil {
			t.Errorf("%s: %v, %v", name, err, cfg.Validate())
		}
	}
}

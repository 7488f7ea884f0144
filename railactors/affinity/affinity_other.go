//go:build !linux

package affinity

import (
	"errors"
	"fmt"
)

// Allowed is Linux's: elsewhere cores cannot be chosen.
func Allowed() ([]int, error) { return nil, fmt.Errorf("choosing cores: %w", errors.ErrUnsupported) }

// Bind is Linux's.
func Bind([]int) (release func(), err error) {
	return func() {}, fmt.Errorf("choosing cores: %w", errors.ErrUnsupported)
}

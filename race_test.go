//go:build race

package polyrail

// The race detector has pools forget on purpose.
func init() { raceDetector = true }

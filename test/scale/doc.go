// Package scale tests communicators of many ranks: of more than are connected with each other
// (docs/decisions/037). The long form prints what they take; docs/scale.md has the figures.
package scale

// Package lint checks the files of packaging/ with what reads them elsewhere: the Kubernetes manifest
// with Kubernetes' own types, decoded strictly, and the Containerfile with BuildKit's linter, which is
// that of "docker build --check". It asks no registry of images, and no API server. It is a module of
// its own, so that polyrail depends on neither; make packaging runs it.
package lint

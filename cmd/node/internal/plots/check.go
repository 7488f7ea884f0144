package plots

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// formats are what Draw writes, as files' names end.
var formats = []string{".svg", ".png", ".pdf"}

// CheckFile says whether Draw could write a file of that name. What is there stays as it is.
func CheckFile(name string) error {
	if !slices.Contains(formats, strings.ToLower(filepath.Ext(name))) {
		return fmt.Errorf("the name must end in %s", strings.Join(formats, ", "))
	}
	_, err := os.Stat(name)
	isNew := errors.Is(err, fs.ErrNotExist)
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666) // as os.Create, but nothing is cut off
	if err != nil {
		return err
	}
	err = file.Close()
	if isNew {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// CheckDir makes a directory for Write, and says whether files can be made in it.
func CheckDir(name string) error {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(name, ".polyrail-")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

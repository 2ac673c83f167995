package cli

import (
	"os"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
)

// output is standard output. It remembers that it could not be written, which most commands
// do not look at: on a full disk, or where the reader has gone.
type output struct {
	*os.File
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// WriteString is needed, or that of the file would be taken.
func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

func (a *app) json(v any) error {
	line, err := text.JSON(v)
	if err == nil {
		_, err = a.out.Write([]byte(line))
	}
	return err
}

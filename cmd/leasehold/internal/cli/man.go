package cli

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func man(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the man pages into a folder",
		Long: `man writes a page for each command, leasehold.1, leasehold-run.1 and so on, into
a folder that it makes where there is none.`,
		Example: `  leasehold man /usr/local/share/man/man1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			// Of no date, so that the same version gives the same pages.
			date := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "LEASEHOLD", Section: "1", Source: "leasehold", Manual: "leasehold", Date: &date}, args[0])
		},
	}
}

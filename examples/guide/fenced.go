package guide

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/leasehold-go/leasehold"
)

// The table needs a column for the newest token:
//
//	ALTER TABLE orders ADD COLUMN last_token BIGINT NOT NULL DEFAULT 0
const saveStatus = `
UPDATE orders
   SET status = $1, last_token = $2
 WHERE id = $3 AND last_token <= $2`

func SaveStatus(ctx context.Context, db *sql.DB, id, status string, token uint64) error {
	result, err := db.ExecContext(ctx, saveStatus, status, int64(token), id)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 { // a later holder has written, or there is no such order
		return fmt.Errorf("order %s: %w", id, leasehold.ErrFenced)
	}
	return nil
}

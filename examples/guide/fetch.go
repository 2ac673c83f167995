package guide

import (
	"context"
	"fmt"
	"net/http"

	"github.com/leasehold-go/leasehold/singleflight"
)

func userHandler(users *singleflight.Group[User], load func(ctx context.Context, id string) (User, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		user, err := users.Fetch(r.Context(), id, func(ctx context.Context) (User, error) { return load(ctx, id) })
		if err != nil {
			http.Error(w, "no user data now", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Age", fmt.Sprint(int(user.Age.Seconds())))
		w.Header().Set("X-Cache", user.Source.String()) // cached, stale, loaded or shared
		fmt.Fprintln(w, user.Value.Name)
	}
}

// A link may carry the token behind the '#', which browsers send to nobody.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
	history.replaceState(null, "", location.pathname);
	document.getElementById("token").value = given;
	document.getElementById("login").requestSubmit();
}

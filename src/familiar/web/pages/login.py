"""The login page. The middleware answers its form."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from familiar.web.middleware.access import local_path
from familiar.web.pages.render import page_response

router = APIRouter()


@router.get("/login")
async def login(request: Request) -> HTMLResponse:
    """Show the login form. `wrong`: the token was wrong; `next`: the page to return to."""
    query = request.query_params
    values = {"current_section": "", "wrong": "wrong" in query, "onward": local_path(query.get("next", "/"), "/")}
    return page_response(request, "login.html", values)

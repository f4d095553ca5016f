"""The login page. The guard answers its form, and lets nobody else in."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from familiar.web.middleware.login import local_path
from familiar.web.pages.render import render_bare_page

router = APIRouter()


@router.get("/login")
async def login(request: Request) -> HTMLResponse:
    """`wrong`: the token was; `next`: the page that was asked for."""
    query = request.query_params
    return render_bare_page(request, "login.html", wrong="wrong" in query, onward=local_path(query.get("next", "/"), "/"))
